"""Operator state in bytes: the operator frame of changelogs, and operator files of checkpoints.

Layout (big-endian; also in ``docs/formats.md``)::

    frame: 0x03 | entries u32 | raw length u32 | stored length u32 | crc32 of those fields and the stored bytes u32 | stored bytes (Zstandard)
    file:  "SSOP" | version u8 = 1 | entries u32 | raw length u32 | stored length u32 | crc32 of all before and the stored bytes u32 | stored bytes
           raw, per entry: slot u16 | state id u16 | whole u8 | items u32 | key lengths u32 * items | value lengths u32 * items
                           (0xFFFFFFFF = deleted) | keys | values
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from typing import IO, Final

from statefulspark.checkpoint.formats.compression import compress, decompress, may_stand_for
from statefulspark.errors import CorruptDataError, IncompatibleFormatError, InvalidInputError
from statefulspark.state.operator.entries import OperatorEntry

MAGIC: Final = b"SSOP"
VERSION: Final = 1
OPERATOR_FRAME_TAG: Final = 3

_TAG = struct.Struct(">B")
_START = struct.Struct(">4sB")
_SIZES = struct.Struct(">III")
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">HHBI")
_DELETED: Final = 0xFFFFFFFF
_LENGTH_BYTES: Final = 4
_Read = Callable[[int], bytes]


def encode_operator_frame(entries: Iterable[OperatorEntry]) -> bytes:
    """Return the operator frame of a changelog.

    Raises:
        InvalidInputError: The entries are larger than 4 GiB.
    """
    return _encoded(_TAG.pack(OPERATOR_FRAME_TAG), entries)


def read_operator_frame(file: IO[bytes], *, path: str, limit_bytes: int) -> tuple[OperatorEntry, ...]:
    """Read the operator frame at the position of ``file``.

    Args:
        file: A changelog.
        path: Name of the changelog for the error text.
        limit_bytes: Bytes left in the file.

    Raises:
        CorruptDataError: There is none, or it is damaged.
    """
    head = file.read(_TAG.size + _SIZES.size + _CRC.size)
    if not head or head[0] != OPERATOR_FRAME_TAG:
        raise CorruptDataError("the operator frame of the changelog is missing", path=path)
    return _decoded(head, _TAG.size, file.read, limit_bytes=limit_bytes - len(head), path=path)


def encode_operator_file(entries: Iterable[OperatorEntry]) -> bytes:
    """Return an operator file.

    Raises:
        InvalidInputError: The entries are larger than 4 GiB.
    """
    return _encoded(_START.pack(MAGIC, VERSION), entries)


def decode_operator_file(data: bytes, *, path: str) -> tuple[OperatorEntry, ...]:
    """Read an operator file.

    Raises:
        IncompatibleFormatError: Written in a version that this release does not read.
        CorruptDataError: Not an operator file, or damaged.
    """
    if data[:4] != MAGIC:
        raise CorruptDataError("not an operator file", path=path)
    if len(data) > 4 and data[4] != VERSION:
        raise IncompatibleFormatError(
            "written in a format that this release cannot read. Use the release that wrote it, or a later one",
            path=path,
            expected=f"version {VERSION}",
            found=f"version {data[4]}",
        )
    size = _START.size + _SIZES.size + _CRC.size
    entries = _decoded(data[:size], _START.size, lambda length: data[size : size + length], limit_bytes=len(data) - size, path=path)
    stored_length = _SIZES.unpack_from(data, _START.size)[2]
    if len(data) != size + stored_length:
        raise CorruptDataError("bytes follow the operator state", path=path)
    return entries


def _encoded(start: bytes, entries: Iterable[OperatorEntry]) -> bytes:
    listed = list(entries)
    raw = b"".join(part for entry in listed for part in _entry_parts(entry))
    if len(raw) >= 1 << 32:
        raise InvalidInputError("the operator state is larger than 4 GiB", field="state", remedy="Use keyed state")
    stored = compress(raw, len(listed) + sum(len(entry.items) for entry in listed))
    head = start + _SIZES.pack(len(listed), len(raw), len(stored))
    return b"".join((head, _CRC.pack(zlib.crc32(stored, zlib.crc32(head))), stored))


def _entry_parts(entry: OperatorEntry) -> Iterable[bytes]:
    keys = [key for key, _ in entry.items]
    values = [value for _, value in entry.items]
    yield _ENTRY.pack(entry.slot, entry.state_id, entry.whole, len(keys))
    lengths = [*map(len, keys), *(_DELETED if value is None else len(value) for value in values)]
    yield struct.pack(f">{len(lengths)}I", *lengths)
    yield from keys
    yield from (value for value in values if value is not None)


def _decoded(head: bytes, start: int, read: _Read, *, limit_bytes: int, path: str) -> tuple[OperatorEntry, ...]:
    if len(head) != start + _SIZES.size + _CRC.size:
        raise CorruptDataError("the operator state is truncated", path=path)
    count, raw_length, stored_length = _SIZES.unpack_from(head, start)
    # Compared before reading: a damaged length must not become a huge allocation.
    stored = read(stored_length) if stored_length <= limit_bytes else b""
    if len(stored) != stored_length:
        raise CorruptDataError("the operator state is truncated", path=path)
    if zlib.crc32(stored, zlib.crc32(head[: -_CRC.size])) != _CRC.unpack(head[-_CRC.size :])[0]:
        raise CorruptDataError("the operator state is damaged", path=path)
    try:
        return tuple(_entries(decompress(stored, raw_length, count), count, stored_length))
    except (struct.error, ValueError) as exc:
        raise CorruptDataError("the operator state is damaged", path=path) from exc


def _entries(raw: bytes, count: int, stored_length: int) -> Iterable[OperatorEntry]:
    """Yield the entries; raises ValueError or ``struct.error`` if the bytes are none."""
    position, objects = 0, count
    for _ in range(count):
        slot, state_id, whole, items = _ENTRY.unpack_from(raw, position)
        position += _ENTRY.size
        if whole not in (0, 1) or position + 2 * _LENGTH_BYTES * items > len(raw):
            raise ValueError("an entry is too short")
        objects += items
        if not may_stand_for(stored_length, len(raw), objects):
            raise ValueError("too many items")
        lengths = struct.unpack_from(f">{2 * items}I", raw, position)
        position += 2 * _LENGTH_BYTES * items
        keys = list(accumulate(lengths[:items], initial=position))
        values = list(accumulate((0 if length == _DELETED else length for length in lengths[items:]), initial=keys[-1]))
        found = (
            (raw[first:end], None if length == _DELETED else raw[value:value_end])
            for (first, end), (value, value_end), length in zip(pairwise(keys), pairwise(values), lengths[items:], strict=True)
        )
        position = values[-1]
        if position > len(raw):
            raise ValueError("an entry is too long")
        yield OperatorEntry(slot, state_id, tuple(found), bool(whole))
    if position != len(raw):
        raise ValueError("bytes are left")
