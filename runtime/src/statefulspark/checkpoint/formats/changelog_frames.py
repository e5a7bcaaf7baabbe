"""Frames of changelogs: entries by column, so that every step over them is one call into C. The layout is that of `changelog`."""

from __future__ import annotations

import os
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import IO, Any

from statefulspark.checkpoint.formats.compression import compress, decompress
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.store.base import Change

ENTRY_BYTES_MAX = 1 << 30
"""Largest key or value, 1 GiB; also bounds what a reader allocates for a frame (u32 lengths)."""
FRAME_TAG = 1
CRC = struct.Struct(">I")

_DELETED = 0xFFFFFFFF
_FRAME = struct.Struct(">BIII")
_JOINED_BYTES_MAX = 1 << 20


class Frame:
    """Entries of one frame, by column. An entry is looked at once, when it is added and still in the processor's cache.

    Attributes:
        entries: How many there are.
        size_bytes: Of their keys and values.
    """

    __slots__ = ("_key_lengths", "_keys", "_value_lengths", "_values", "entries", "size_bytes")

    def __init__(self) -> None:
        self.entries = 0
        self.size_bytes = 0
        self._key_lengths = array("I")
        self._value_lengths = array("I")
        self._keys: list[bytes] = []
        self._values: list[bytes] = []

    def add(self, changes: Iterable[Change]) -> int:
        """Add changes, at least one, and return the bytes of their keys and values.

        Raises:
            InvalidInputError: A key or value is larger than 1 GiB.
        """
        keys, values = zip(*changes, strict=True)
        stored: Sequence[bytes] = values
        key_lengths = list(map(len, keys))
        if None in values:
            value_lengths = [_DELETED if value is None else len(value) for value in values]
            stored = [value for value in values if value is not None]
            sizes = list(map(len, stored))
        else:
            value_lengths = sizes = list(map(len, stored))
        if max(key_lengths) > ENTRY_BYTES_MAX or max(sizes, default=0) > ENTRY_BYTES_MAX:
            raise InvalidInputError(
                "a state entry is larger than 1 GiB", field="state", remedy="Split the value over several keys or map entries."
            )
        size_bytes = sum(key_lengths) + sum(sizes)
        self._key_lengths.extend(key_lengths)
        self._value_lengths.extend(value_lengths)
        # Large ones are not copied once more.
        joined = size_bytes <= _JOINED_BYTES_MAX
        self._keys += (b"".join(keys),) if joined else keys
        self._values += (b"".join(stored),) if joined else stored
        self.entries += len(keys)
        self.size_bytes += size_bytes
        return size_bytes

    def encoded(self) -> bytes:
        """Return the bytes of the frame.

        Raises:
            InvalidInputError: The entries are too large for one frame.
        """
        raw = b"".join((_to_big_endian(self._key_lengths), _to_big_endian(self._value_lengths), *self._keys, *self._values))
        if len(raw) >= 1 << 32:
            raise InvalidInputError("state entries are too large for one frame", field="state", remedy="Split the value over several keys.")
        stored = compress(raw, self.entries)
        head = _FRAME.pack(FRAME_TAG, self.entries, len(raw), len(stored))
        return b"".join((head, CRC.pack(zlib.crc32(stored, zlib.crc32(head))), stored))


def _to_big_endian(lengths: array[int]) -> bytes:
    if sys.byteorder == "little":
        lengths = lengths[:]
        lengths.byteswap()
    return lengths.tobytes()


def _from_big_endian(data: bytes) -> array[int]:
    lengths = array("I", data)
    if sys.byteorder == "little":
        lengths.byteswap()
    return lengths


def read_exactly(file: IO[bytes], size: int, path: str) -> bytes:
    """Read ``size`` bytes; CorruptDataError if there are fewer."""
    data = file.read(size)
    if len(data) != size:
        raise CorruptDataError("the changelog is truncated", path=path, expected=f"{size} bytes", found=f"{len(data)} bytes")
    return data


def read_frame(file: IO[bytes], path: str, frame: int) -> list[Any]:
    """Return the frame's changes; ``Any`` because zip cannot say that they are pairs of key and value."""
    head = bytes([FRAME_TAG]) + read_exactly(file, _FRAME.size - 1, path)
    _, count, raw_length, stored_length = _FRAME.unpack(head)
    (crc,) = CRC.unpack(read_exactly(file, CRC.size, path))
    if stored_length > os.fstat(file.fileno()).st_size - file.tell():
        # Checked before reading: a damaged length must not become a huge allocation.
        raise CorruptDataError("the changelog is truncated", path=path)
    stored = read_exactly(file, stored_length, path)
    if zlib.crc32(stored, zlib.crc32(head)) != crc:
        raise CorruptDataError(f"frame {frame} of the changelog is damaged", path=path)
    try:
        raw = decompress(stored, raw_length, count)
    except ValueError as exc:
        raise CorruptDataError(f"frame {frame} of the changelog is damaged", path=path) from exc
    if raw_length < 8 * count:
        raise CorruptDataError(f"frame {frame} of the changelog is damaged", path=path)
    key_lengths = _from_big_endian(raw[: 4 * count])
    value_lengths = _from_big_endian(raw[4 * count : 8 * count])
    key_ends = list(accumulate(key_lengths, initial=8 * count))
    value_ends = list(accumulate((0 if length == _DELETED else length for length in value_lengths), initial=key_ends[-1]))
    if value_ends[-1] != raw_length:
        raise CorruptDataError(f"frame {frame} of the changelog is damaged", path=path)
    keys = [raw[start:end] for start, end in pairwise(key_ends)]
    values: list[bytes | None] = [raw[start:end] for start, end in pairwise(value_ends)]
    if _DELETED in value_lengths:
        values = [None if length == _DELETED else value for length, value in zip(value_lengths, values, strict=True)]
    return list(zip(keys, values, strict=True))
