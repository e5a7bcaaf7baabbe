"""Finds what has expired in the stored entries of an evolved state, for `Sweep`. It follows expiries through the schemas and decodes no values."""

from __future__ import annotations

from collections.abc import Iterator

from statefulspark.state.encoding.segments import is_segment
from statefulspark.state.evolution.list_reader import ListSchemaReader
from statefulspark.state.evolution.schema_reader import SchemaReader, StoredPart
from statefulspark.state.store.base import Change
from statefulspark.state.tables.sweep import Expiring, Swept
from statefulspark.state.tables.ttl_lists import REWRITTEN_BYTES_MAX, is_worth_rewriting


def evolved_expiring(reader: SchemaReader) -> Expiring:
    """Return the finder of expired entries for a reader's state."""
    return EvolvedExpiringLists(reader) if isinstance(reader, ListSchemaReader) else EvolvedExpiring(reader)


class EvolvedExpiring:
    """See `Expiring`. Where time to live is off, only what was gone when it was switched off has expired."""

    __slots__ = ("_reader",)

    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader

    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:  # noqa: ARG002  one check per entry
        """See `Expiring`."""
        deletes: list[bytes] = []
        key, count = None, 0
        left: list[int] = []
        for key, data in entries:
            count += 1
            part = self._reader.part(data)
            if not _lives(part, now_ms):
                deletes.append(key)
            elif part.expiry_ms is not None:
                left.append(part.expiry_ms)
        return Swept(deletes, [], len(deletes), key, count, count, min(left, default=None))


class EvolvedExpiringLists:
    """The same for lists, of any length. As in `ExpiringListState`, a list or a segment is written again once a quarter has expired.

    What is left is written as its own schema wrote it.
    """

    __slots__ = ("_reader",)

    def __init__(self, reader: ListSchemaReader) -> None:
        self._reader = reader

    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:
        """See `Expiring`."""
        deletes: list[bytes] = []
        rewritten: list[Change] = []
        key, count, checks, expired, rewritten_bytes = None, 0, 0, 0, 0
        left: list[int] = []
        for key, data in entries:
            stored = self._reader.stored(data)
            kept = [_lives(part, now_ms) for part in stored.elements]
            living = sum(kept)
            count += 1
            checks += max(1, len(kept))
            if living or (stored.segments is not None and _lives(stored.segments, now_ms)):
                parts = [part for part, lives in zip(stored.elements, kept, strict=True) if lives]
                if stored.segments is not None and not living:
                    parts.append(stored.segments)
                left += [part.expiry_ms for part in parts if part.expiry_ms is not None]
                if is_worth_rewriting(len(kept), living):
                    rewritten.append((key, self._reader.shortened(data, kept)))
                    rewritten_bytes += len(data)
            else:
                deletes.append(key)
                expired += not is_segment(data)
            if checks >= checks_max or rewritten_bytes >= REWRITTEN_BYTES_MAX:
                break
        return Swept(deletes, rewritten, expired, key, count, checks, min(left, default=None))


def _lives(part: StoredPart, now_ms: int) -> bool:
    return not part.gone and (part.expiry_ms is None or part.expiry_ms > now_ms)
