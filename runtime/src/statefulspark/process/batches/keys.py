"""The keys of a call of a batch function, found in rows that are sorted by key hash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from statefulspark.keygroups import key_group_of_hash
from statefulspark.process.rows.columns import python_values
from statefulspark.process.rows.keyruns import run_starts
from statefulspark.process.rows.reserved_columns import KEY_HASH, RESERVED
from statefulspark.state.encoding.idents import Idents
from statefulspark.state.encoding.keys import KeyCodec

__all__ = ["KeyedBatch", "KeyedBatches", "key_array", "whole_keys"]

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """The rows of some keys; key ``n`` has the rows from ``offsets[n]`` up to ``offsets[n + 1]``."""

    keys: pa.Array
    idents: Sequence[bytes]
    rows: pa.RecordBatch
    offsets: Numbers


def whole_keys(chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield sorted rows in batches none of which ends within a key."""
    held: list[pa.RecordBatch] = []
    for chunk in chunks:
        if held:
            # The rows of one hash stand together: those of the last one may go on in this chunk.
            last = held[-1].column(KEY_HASH)[-1].as_py()
            count = int(np.searchsorted(chunk.column(KEY_HASH).to_numpy(zero_copy_only=False), last, "right"))
            if count:
                held.append(chunk.slice(0, count))
            if count == chunk.num_rows:
                continue
            yield _joined(held)
            held, chunk = [], chunk.slice(count)  # noqa: PLW2901  the rest
        held.append(chunk)
    if held:
        yield _joined(held)


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


class KeyedBatches:
    """Splits sorted rows of whole keys into calls.

    Args:
        schema: The user's columns.
        key_columns: The key's.
        max_parallelism: Number of key groups.
        codec: Encodes keys.
        idents: Makes idents of keys.
        keys_max: Keys per call.
    """

    def __init__(
        self, schema: pa.Schema, key_columns: Sequence[str], *, max_parallelism: int, codec: KeyCodec, idents: Idents, keys_max: int
    ) -> None:
        self._schema = schema
        self._key_columns = tuple(key_columns)
        self._max_parallelism = max_parallelism
        self._codec = codec
        self._idents = idents
        self._keys_max = keys_max

    def of(self, chunk: pa.RecordBatch) -> Iterator[KeyedBatch]:
        """Yield the keys of a chunk, and their rows."""
        firsts, distinct = run_starts(chunk, self._key_columns)
        hashes = chunk.column(KEY_HASH).to_numpy(zero_copy_only=False)
        columns = [chunk.column(name).take(pa.array(firsts)) for name in self._key_columns]
        groups = key_group_of_hash(hashes[firsts], self._max_parallelism).tolist()
        idents = self._idents.of_all(zip(groups, encoded(columns, self._codec), strict=True))
        offsets = np.append(firsts, chunk.num_rows)
        if not distinct:
            chunk, idents, offsets = _regrouped(chunk, idents, offsets)
            columns = [chunk.column(name).take(pa.array(offsets[:-1])) for name in self._key_columns]
        keys = key_array(columns, self._key_columns)
        names = [name for name in chunk.schema.names if name not in RESERVED]
        arrays = [column for column, name in zip(chunk.columns, chunk.schema.names, strict=True) if name not in RESERVED]
        rows = pa.RecordBatch.from_arrays(arrays, names=names)
        for first in range(0, len(idents), self._keys_max):
            here = offsets[first : first + self._keys_max + 1]
            count = len(here) - 1
            yield KeyedBatch(
                keys.slice(first, count),
                idents[first : first + count],
                rows.slice(int(here[0]), int(here[-1] - here[0])),
                here - here[0],
            )


def key_array(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """Return keys, given by their columns, as an array: of several columns a struct."""
    return columns[0] if len(columns) == 1 else pa.StructArray.from_arrays(columns, names=list(names))


def encoded(columns: Sequence[pa.Array], codec: KeyCodec) -> Iterable[bytes]:
    """Return the bytes of keys, given by their columns."""
    name = codec.types[0].name if len(columns) == 1 else None
    if name == "STRING":
        # What the codec makes of text, without a call for each key.
        return columns[0].cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]
    if name == "LONG":
        data = columns[0].cast(pa.int64()).to_numpy(zero_copy_only=False).astype(">i8").tobytes()
        return [data[at : at + 8] for at in range(0, len(data), 8)]
    values = [python_values(column) for column in columns]
    return map(codec.encode, values[0] if len(values) == 1 else zip(*values, strict=True))


def _regrouped(chunk: pa.RecordBatch, idents: list[bytes], offsets: Numbers) -> tuple[pa.RecordBatch, list[bytes], Numbers]:
    """Put the rows of each key together: keys of one hash may alternate."""
    numbers: dict[bytes, int] = {}
    of_runs = [numbers.setdefault(ident, len(numbers)) for ident in idents]
    of_rows = np.repeat(of_runs, np.diff(offsets))
    order = np.argsort(of_rows, kind="stable")
    ends = np.cumsum(np.bincount(of_rows, minlength=len(numbers)))
    return chunk.take(pa.array(order)), list(numbers), np.append(0, ends).astype(np.int64)
