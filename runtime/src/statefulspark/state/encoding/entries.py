"""The canonical file of store entries, independent of the kind of store that wrote it.

``magic "SSPE" | version u8 | records | end``; a record is ``length of key u32 | length of value u32 | key | value``, in key order; the end
is ``0xFFFFFFFF | entry count u64 | CRC-32 of everything before it u32``. All numbers are big-endian.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from statefulspark.errors import CorruptDataError, IncompatibleFormatError

HEAP_TIMERS_FILE: Final = "heap-timers"
"""Name of the file with timers that were on the heap beside a store in RocksDB."""

CANONICAL: Final = "canonical"
"""In place of the kind of a store: its entries are in one Parquet file, from which a store of any kind is filled."""
PARQUET_ENTRIES_FILE: Final = "entries.parquet"
"""Name of that file."""

MAGIC: Final = b"SSPE"
VERSION: Final = 1

_RECORD: Final = struct.Struct(">II")
RECORD_OVERHEAD_BYTES: Final = _RECORD.size
"""Bytes of a record beside its key and value."""
END_MARK: Final = 0xFFFFFFFF
"""Stands in place of a key's length before the end."""
_END: Final = struct.Struct(">IQI")
_BUFFER_BYTES: Final = 1 << 20


def write_entries(path: Path, entries: Iterable[tuple[bytes, bytes]]) -> int:
    """Write entries, which come in key order, to a new file and sync it; return how many there were."""
    count = 0
    with path.open("xb", buffering=_BUFFER_BYTES) as file:
        head = MAGIC + bytes([VERSION])
        file.write(head)
        checksum = zlib.crc32(head)
        for key, value in entries:
            record = _RECORD.pack(len(key), len(value)) + key + value
            file.write(record)
            checksum = zlib.crc32(record, checksum)
            count += 1
        file.write(_END.pack(END_MARK, count, checksum))
        file.flush()
        os.fsync(file.fileno())
    return count


def read_entries(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a file in key order; the checksum is verified when the last one has been taken.

    Raises:
        CorruptDataError: The file is damaged or cut short.
        IncompatibleFormatError: Another version wrote it.
    """
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        head = _read(file, 5, path)
        if head[:4] != MAGIC:
            raise CorruptDataError("not a file of entries", path=str(path))
        if head[4] != VERSION:
            raise IncompatibleFormatError("unknown version", path=str(path), expected=str(VERSION), found=str(head[4]))
        checksum = zlib.crc32(head)
        count = 0
        while True:
            lengths = _read(file, _RECORD.size, path)
            key_length, value_length = _RECORD.unpack(lengths)
            if key_length == END_MARK:
                break
            body = _read(file, key_length + value_length, path)
            checksum = zlib.crc32(body, zlib.crc32(lengths, checksum))
            count += 1
            yield body[:key_length], body[key_length:]
        _, expected_count, expected_checksum = _END.unpack(lengths + _read(file, _END.size - _RECORD.size, path))
        if (count, checksum) != (expected_count, expected_checksum) or file.read(1):
            raise CorruptDataError("damaged", path=str(path), expected=f"{expected_checksum:08x}", found=f"{checksum:08x}")


def _read(file: BinaryIO, size_bytes: int, path: Path) -> bytes:
    # Compared before reading: a damaged length must not become a huge allocation.
    left = size_bytes if size_bytes <= _BUFFER_BYTES else min(size_bytes, os.fstat(file.fileno()).st_size - file.tell())
    data = file.read(left)
    if len(data) != size_bytes:
        raise CorruptDataError("truncated", path=str(path), expected=f"{size_bytes} bytes", found=str(len(data)))
    return data
