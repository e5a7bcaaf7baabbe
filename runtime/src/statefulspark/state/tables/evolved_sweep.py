"""Finds what has expired in the stored entries of an evolved state, for `Sweep`. It follows expiries through the schemas and decodes no values."""

from __future__ import annotations

from collections.abc import Iterator

from statefulspark.state.evolution.schema_reader import SchemaReader
from statefulspark.state.store.base import Change
from statefulspark.state.tables.sweep import Swept


class EvolvedExpiring:
    """See `Expiring`. Where time to live is off, only what was gone when it was switched off has expired."""

    __slots__ = ("_reader",)

    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader

    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:  # noqa: ARG002  one check per entry
        """See `Expiring`."""
        changes: list[Change] = []
        key, count = None, 0
        left: list[int] = []
        for key, data in entries:
            count += 1
            part = self._reader.part(data)
            if part.gone or (part.expiry_ms is not None and part.expiry_ms <= now_ms):
                changes.append((key, None))
            elif part.expiry_ms is not None:
                left.append(part.expiry_ms)
        return Swept(changes, len(changes), len(changes), key, count, count, min(left, default=None))
