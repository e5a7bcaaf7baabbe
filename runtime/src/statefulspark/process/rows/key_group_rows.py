"""KeyGroupRows: counts the rows of a keyed step per key group of a slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from statefulspark.keygroups import KeyGroupRange, key_group_of_hash

__all__ = ["KeyGroupRows", "RowSpread"]

WINDOW_ROWS: Final = 2_000_000
"""When so many rows are counted all counts are halved, so that what was long ago fades."""


@dataclass(frozen=True, slots=True)
class RowSpread:
    """Counts at one moment.

    Attributes:
        rows: Of all key groups.
        key_groups: Number of key groups, those without rows included.
        top: (key group, rows), the one with most rows first.
    """

    rows: int
    key_groups: int
    top: tuple[tuple[int, int], ...]


class KeyGroupRows:
    """Counts rows per key group. One thread counts, another may read.

    Args:
        key_groups: The slot's.
        max_parallelism: Number of all key groups.
        window_rows: See `WINDOW_ROWS`.
    """

    def __init__(self, key_groups: KeyGroupRange, max_parallelism: int, window_rows: int = WINDOW_ROWS) -> None:
        self._first = key_groups.first
        self._max_parallelism = max_parallelism
        self._window_rows = window_rows
        self._counts = np.zeros(key_groups.count, dtype=np.int64)

    def add(self, key_hashes: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Count rows by the hashes of their keys; those of other slots' key groups, which the keyed step refuses, are left out."""
        groups = key_group_of_hash(key_hashes, self._max_parallelism) - self._first
        own = groups[(groups >= 0) & (groups < len(self._counts))]
        counts = self._counts + np.bincount(own, minlength=len(self._counts))
        # Replaced and not changed in place, so that a reader sees one moment.
        self._counts = counts // 2 if int(counts.sum()) > self._window_rows else counts

    def spread(self, top: int) -> RowSpread:
        """Return the counts with the ``top`` fullest key groups."""
        counts = self._counts
        order = np.argsort(-counts, kind="stable")[:top]
        fullest = tuple((self._first + int(at), int(counts[at])) for at in order if counts[at])
        return RowSpread(int(counts.sum()), len(counts), fullest)
