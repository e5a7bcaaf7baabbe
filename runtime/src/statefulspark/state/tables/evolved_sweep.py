"""Finds what has expired in the stored entries of an evolved state, for `Sweep`. It follows expiries through the schemas and decodes no values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from statefulspark.state.evolution.schema_reader import SchemaReader
from statefulspark.state.store.base import Change
from statefulspark.state.tables.sweep import Swept

_REWRITTEN_FROM: Final = 4
"""A list is written again when one element in so many has expired, as in `ttl_states`."""
_REWRITTEN_BYTES_MAX: Final = 4 << 20


class EvolvedExpiring:
    """See `Expiring`. Where time to live is off, only what was gone when it was switched off has expired."""

    __slots__ = ("_reader",)

    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader

    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:
        """See `Expiring`."""
        changes: list[Change] = []
        key, count, checks, deleted, rewritten_bytes = None, 0, 0, 0, 0
        next_expiry_ms: int | None = None
        for key, data in entries:
            parts = self._reader.parts(data)
            living = [not part.gone and (part.expiry_ms is None or part.expiry_ms > now_ms) for part in parts]
            count += 1
            checks += max(1, len(parts))
            if not any(living):
                changes.append((key, None))
                deleted += 1
            else:
                expiries = [part.expiry_ms for part, lives in zip(parts, living, strict=True) if lives and part.expiry_ms is not None]
                next_expiry_ms = min([*expiries, *([] if next_expiry_ms is None else [next_expiry_ms])], default=None)
                if living.count(False) * _REWRITTEN_FROM >= len(parts):
                    changes.append((key, self._reader.shortened(data, living)))
                    rewritten_bytes += len(data)
            if checks >= checks_max or rewritten_bytes >= _REWRITTEN_BYTES_MAX:
                break
        return Swept(changes, deleted, key, count, checks, next_expiry_ms)
