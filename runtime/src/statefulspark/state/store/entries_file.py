"""EntriesFile: reads a canonical file of entries in place, so that memory does not grow with the file."""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from statefulspark.errors import ClosedError, CorruptDataError, IncompatibleFormatError
from statefulspark.state.encoding.entries import END_MARK, MAGIC, VERSION
from statefulspark.storage.local.os_errors import deleted_file, local_disk

_RECORD: Final = struct.Struct(">II")
_END: Final = struct.Struct(">IQI")
_HEAD_BYTES: Final = len(MAGIC) + 1
_INDEXED: Final = 256
"""Every so many entries one key is kept in memory."""
_CHECKED_BYTES: Final = 1 << 20


class EntriesFile:
    """The `StoredEntries` of a snapshot that a store in memory wrote.

    The file is checked when it is opened. Beside one key in 256, memory holds nothing of it.

    Args:
        path: The file.

    Raises:
        CorruptDataError: The file is damaged, cut short or out of order.
        IncompatibleFormatError: Another version wrote it.
        UnavailableError: The disk fails, or the file has been deleted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: list[bytes] = []
        self._places: list[int] = []
        self._end = 0
        self._data = _mapped(path)
        try:
            self._check_head(self._data[:_HEAD_BYTES])
            count = self._index(self._data)
            self._check_end(self._data, count)
        except BaseException:
            self.close()
            raise

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [next((value for _, value in self.scan(key, key + b"\0")), None) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        data = self._data
        if data.closed:
            raise ClosedError(f"{self._path} is closed")
        unpack, stop = _RECORD.unpack_from, self._end
        at = self._places[max(bisect_right(self._keys, first) - 1, 0)] if self._places else stop
        while at < stop:
            key_length, value_length = unpack(data, at)
            value_at = at + _RECORD.size + key_length
            key = data[at + _RECORD.size : value_at]
            at = value_at + value_length
            if key < first:
                continue
            if key >= end:
                return
            yield key, data[value_at:at]

    def close(self) -> None:
        self._data.close()

    def _check_head(self, head: bytes) -> None:
        if head[: len(MAGIC)] != MAGIC:
            raise CorruptDataError("not a file of entries", path=str(self._path))
        if head[-1] != VERSION:
            raise IncompatibleFormatError("unknown version", path=str(self._path), expected=str(VERSION), found=str(head[-1]))

    def _index(self, data: mmap.mmap) -> int:
        """Walk over the records, keep the places of some, and return how many there are."""
        at, count, last = _HEAD_BYTES, 0, b""
        unpack, stop = _RECORD.unpack_from, len(data) - _END.size
        while at <= stop:
            key_length, value_length = unpack(data, at)
            if key_length == END_MARK:
                self._end = at
                return count
            if count % _INDEXED == 0:
                key = data[at + _RECORD.size : at + _RECORD.size + key_length]
                if count and key <= last:
                    raise CorruptDataError("the entries are out of order", path=str(self._path))
                self._keys.append(key)
                self._places.append(at)
                last = key
            at += _RECORD.size + key_length + value_length
            count += 1
        raise CorruptDataError("truncated", path=str(self._path), expected=f"{at + _END.size} bytes or more", found=str(len(data)))

    def _check_end(self, data: mmap.mmap, count: int) -> None:
        _, expected_count, expected = _END.unpack_from(data, self._end)
        checksum = 0
        for at in range(0, self._end, _CHECKED_BYTES):
            checksum = zlib.crc32(data[at : min(at + _CHECKED_BYTES, self._end)], checksum)
        if (count, checksum) != (expected_count, expected) or self._end + _END.size != len(data):
            raise CorruptDataError("damaged", path=str(self._path), expected=f"{expected:08x}", found=f"{checksum:08x}")


def _mapped(path: Path) -> mmap.mmap:
    with local_disk():
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < _HEAD_BYTES + _END.size:
                    raise CorruptDataError("truncated", path=str(path))
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            # Not the same as a file without entries: state that is there would read as empty.
            raise deleted_file(path) from None
