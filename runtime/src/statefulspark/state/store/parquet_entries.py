"""The entries of a slot in one Parquet file, independent of the kind of store and of its version (docs/formats.md).

The columns are ``key`` and ``value``, the rows are in the order of the keys. A row group has few megabytes, and the least and greatest key of each
are in the file's footer, so that a range of keys is found without reading the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statefulspark.errors import ClosedError, CorruptDataError, IncompatibleFormatError, InvalidInputError
from statefulspark.storage.local.os_errors import disk_error, local_disk

_VERSION_NAME: Final = b"statefulspark.entries"
_VERSION: Final = b"1"
_SCHEMA: Final = pa.schema(
    [pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)], metadata={_VERSION_NAME: _VERSION}
)
_ROWS_FIRST: Final = 256
_ROWS_MAX: Final = 65_536
_GROUP_BYTES: Final = 4 << 20
"""Bytes of keys and values that a row group should have."""

Entry = tuple[bytes, bytes]


def write_parquet_entries(path: Path, entries: Iterable[Entry]) -> int:
    """Write entries, which come in key order, to a new file; return how many there were.

    Raises:
        CorruptDataError: The entries are out of order.
        InvalidInputError: An entry is too large for Parquet.
        UnavailableError: The disk is full or fails.
    """
    count = 0
    with ParquetEntriesWriter(path) as writer:
        for keys, values in entry_pieces(entries):
            writer.append(keys, values)
            count += len(keys)
    return count


def entry_pieces(entries: Iterable[Entry]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield keys and values of entries, as many at a time as a row group should have."""
    remaining, rows = iter(entries), _ROWS_FIRST
    while piece := list(islice(remaining, rows)):
        keys, values = [key for key, _ in piece], [value for _, value in piece]
        yield keys, values
        size_bytes = sum(map(len, keys)) + sum(map(len, values))
        rows = max(1, min(_ROWS_MAX, _GROUP_BYTES * len(piece) // size_bytes))


class ParquetEntriesWriter:
    """Writes a file that `ParquetEntries` reads; a context manager, which closes the file.

    Args:
        path: The new file.

    Raises:
        UnavailableError: The disk is full or fails.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: pa.Array | None = None
        # Every key is another one, so a dictionary would only cost time. zstd's first level is the fastest.
        options = {"compression": "zstd", "compression_level": 1, "use_dictionary": False, "write_statistics": ["key"]}
        with local_disk():
            self._writer = pq.ParquetWriter(path, _SCHEMA, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with local_disk():
            self._writer.close()

    def append(self, keys: list[bytes], values: list[bytes]) -> None:
        """Write a row group.

        Raises:
            CorruptDataError: Keys are out of order.
            InvalidInputError: An entry is too large for Parquet.
            UnavailableError: The disk is full or fails.
        """
        try:
            found = pa.array(keys, pa.binary())
            before, following = (found[:-1], found[1:]) if self._last is None else (pa.concat_arrays([self._last, found[:-1]]), found)
            if not pc.all(pc.less(before, following), min_count=0).as_py():
                raise CorruptDataError("the store's entries are out of order", path=str(self._path))
            with local_disk():
                self._writer.write_batch(pa.RecordBatch.from_arrays([found, pa.array(values, pa.binary())], schema=_SCHEMA))
        except (pa.ArrowCapacityError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidInputError("an entry is larger than 2 GiB, which Parquet does not hold", field="state") from error
        self._last = found[-1:]


class ParquetEntries:
    """The `StoredEntries` of a file that `write_parquet_entries` wrote. Memory holds one row group of it.

    Args:
        path: The file.

    Raises:
        CorruptDataError: It is missing or no such file.
        IncompatibleFormatError: A later release wrote it.
        UnavailableError: The disk fails.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._group: tuple[int, list[bytes], list[bytes]] | None = None
        with damaged_parquet(self._path):
            self._file = pq.ParquetFile(path, memory_map=True)
        try:
            version = (self._file.metadata.metadata or {}).get(_VERSION_NAME)
            if version is None:
                raise CorruptDataError("not a file of entries", path=str(path))
            if version != _VERSION:
                raise IncompatibleFormatError("unknown version", path=str(path), expected="1", found=version.decode("ascii", "replace"))
            if not self._file.schema_arrow.equals(_SCHEMA):
                raise CorruptDataError("its columns are not those of entries", path=str(path))
            self._bounds = [self._bounds_of(index) for index in range(self._file.num_row_groups)]
        except BaseException:
            self.close()
            raise

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [next((value for _, value in self.scan(key, key + b"\0")), None) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[Entry]:
        for index, (least, greatest) in enumerate(self._bounds):
            if greatest is not None and greatest < first:
                continue
            if least is not None and least >= end:
                return
            keys, values = self._entries(index)
            at, stop = bisect_left(keys, first), bisect_left(keys, end)
            yield from zip(keys[at:stop], values[at:stop], strict=True)

    def close(self) -> None:
        self._group = None
        self._file.close()

    def _bounds_of(self, index: int) -> tuple[bytes | None, bytes | None]:
        """Return the least and greatest key of a row group; None if they are longer than Parquet keeps."""
        statistics = self._file.metadata.row_group(index).column(0).statistics
        return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else (None, None)

    def _entries(self, index: int) -> tuple[list[bytes], list[bytes]]:
        if self._group is None or self._group[0] != index:
            if self._file.closed:
                raise ClosedError(f"{self._path} is closed")
            with damaged_parquet(self._path):
                table = self._file.read_row_group(index, use_threads=False)
            self._group = (index, table.column(0).to_pylist(), table.column(1).to_pylist())
        return self._group[1], self._group[2]


@contextmanager
def damaged_parquet(path: Path) -> Iterator[None]:
    """Tell a damaged file from a disk that fails, while a Parquet file is read.

    Raises:
        CorruptDataError: The file is missing or damaged.
        UnavailableError: The disk fails.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise CorruptDataError("the file is missing", path=str(path)) from error
    except (OSError, pa.ArrowException) as error:
        raise disk_error(error) or CorruptDataError(f"not a sound Parquet file: {error}", path=str(path)) from error
