"""Finds the distinct keys of a sorted chunk, so that the cost of a key is paid once instead of per row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statefulspark.errors import InternalError
from statefulspark.keygroups import key_group_of_hash
from statefulspark.process.rows.columns import python_values
from statefulspark.process.rows.reserved_columns import KEY_HASH

__all__ = ["KeyRun", "KeyRuns", "run_starts"]

KeyRun = tuple[int, Any]
"""(key group, key)"""


@dataclass(frozen=True, slots=True)
class ChunkKeys:
    """The runs of equal keys of one chunk."""

    rows: int
    first_rows: list[int]
    keys: list[KeyRun]
    places: list[tuple[int, bytes]]
    """Key group and bytes of each of these keys."""
    distinct: bool
    """False if a key may have several runs, because another key has the same hash."""

    def per_row(self) -> list[KeyRun | None]:
        """Return one entry per row: the key where it changes, None where it stays."""
        changes: list[KeyRun | None] = [None] * self.rows
        for first, key in zip(self.first_rows, self.keys, strict=True):
            changes[first] = key
        return changes


class KeyRuns:
    """Splits chunks of one step; ``encode`` gives a key's bytes."""

    def __init__(self, key_columns: Sequence[str], max_parallelism: int, encode: Callable[[Any], bytes]) -> None:
        self._key_columns = tuple(key_columns)
        self._max_parallelism = max_parallelism
        self._encode = encode

    def of(self, chunk: pa.RecordBatch) -> ChunkKeys:
        """Find the runs. Rows are sorted by hash; two keys of one hash may alternate and then give a run each time."""
        firsts, distinct = run_starts(chunk, self._key_columns)
        hashes = chunk.column(KEY_HASH).to_numpy(zero_copy_only=False)
        positions = pa.array(firsts)
        values = [python_values(chunk.column(name).take(positions), name) for name in self._key_columns]
        keys = values[0] if len(values) == 1 else list(zip(*values, strict=True))
        key_groups = key_group_of_hash(hashes[firsts], self._max_parallelism).tolist()
        places = list(zip(key_groups, map(self._encode, keys), strict=True))
        return ChunkKeys(len(hashes), firsts.tolist(), list(zip(key_groups, keys, strict=True)), places, distinct)


def run_starts(chunk: pa.RecordBatch, key_columns: Sequence[str]) -> tuple[np.ndarray[Any, np.dtype[np.int64]], bool]:
    """Return the first row of each run of equal keys of a chunk, and False if a key may have several runs."""
    columns = [chunk.column(name) for name in key_columns]
    if any(column.null_count for column in columns):
        raise InternalError("a null key reached a slot, although Spark rejects null keys when it reads the batch")
    hashes = chunk.column(KEY_HASH).to_numpy(zero_copy_only=False)
    hash_changed = hashes[1:] != hashes[:-1]
    changed = hash_changed.copy()
    for column in columns:
        changed |= _changes(column)
    firsts = np.concatenate((np.zeros(min(1, len(hashes)), dtype=np.int64), np.flatnonzero(changed) + 1))
    return firsts, bool(np.count_nonzero(changed) == np.count_nonzero(hash_changed))


def _changes(column: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A mask of the values that differ from the previous one."""
    try:
        different: np.ndarray[Any, np.dtype[np.bool_]] = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(
            zero_copy_only=False
        )
    except pa.ArrowNotImplementedError:
        values = column.to_pylist()
        different = np.array([after != before for before, after in pairwise(values)], dtype=bool)
    return different
