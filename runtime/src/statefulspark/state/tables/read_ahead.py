"""Reads the states of keys that become current next into the cache, as many as it has room for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from statefulspark.state.tables.table import StateTable

_KEYS_FIRST: Final = 16
_GROWTH: Final = 8


def read_ahead(tables: Iterable[StateTable], idents: Sequence[bytes], cached_bytes: Callable[[], int], budget_bytes: int) -> int:
    """Read the entries of keys, and return how many keys of the beginning were read: at least one if there are any.

    Args:
        tables: Of the states.
        idents: Of the keys.
        cached_bytes: Measures the cache.
        budget_bytes: Room for the cache.
    """
    listed = list(tables)
    before = cached_bytes()
    read, step = 0, _KEYS_FIRST
    while read < len(idents) and step:
        part = idents[read : read + step]
        for table in listed:
            table.prefetch(part)
        read += len(part)
        grown = cached_bytes() - before
        # Sizes of entries are known once some are read; they differ, so the next part grows by a factor only.
        room = (budget_bytes - before - grown) * read // max(1, grown)
        step = max(0, min(step * _GROWTH, room))
    return read
