"""Groups of changelogs: small changelogs of one batch, of any slots and keyed steps, in one object.

An object store charges for requests and not for bytes of this size, so the driver stores what slots send it in one request.

Layout (big-endian; also in ``docs/formats.md``)::

    "SSCL" | version u8 = 6 | changelogs u32 | sizes u32 * changelogs | crc32 of all before u32 | the changelogs, one after the other

Each of them is a whole changelog of version 1 to 5, with its own checksums. Nothing follows the last one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from itertools import accumulate, pairwise

from statefulspark.checkpoint.formats.changelog import GROUP_VERSION, MAGIC, check_version
from statefulspark.errors import CorruptDataError

_START = struct.Struct(">4sBI")
_CRC = struct.Struct(">I")


def encode_group(changelogs: Iterable[bytes]) -> bytes:
    """Return the object that has these changelogs, each shorter than 4 GiB."""
    parts = tuple(changelogs)
    start = _START.pack(MAGIC, GROUP_VERSION, len(parts)) + struct.pack(f">{len(parts)}I", *map(len, parts))
    return b"".join((start, _CRC.pack(zlib.crc32(start)), *parts))


def is_group(start: bytes) -> bool:
    """True if an object that begins with ``start``, of 5 bytes or more, is a group."""
    return start[:4] == MAGIC and start[4:5] == bytes([GROUP_VERSION])


def decode_group(data: bytes, *, path: str) -> tuple[bytes, ...]:
    """Return the changelogs of a group, which are not verified yet.

    Args:
        data: The object.
        path: Its name for the error text.

    Raises:
        CorruptDataError: Not a group, or damaged in front of the changelogs, or their sizes do not add up.
        IncompatibleFormatError: Written in a version this release does not read.
    """
    check_version(data, path)
    if not is_group(data) or len(data) < _START.size:
        raise CorruptDataError("not a group of changelogs", path=path)
    _, _, count = _START.unpack_from(data)
    end = _START.size + 4 * count
    if end + _CRC.size > len(data) or _CRC.unpack_from(data, end)[0] != zlib.crc32(data[:end]):
        raise CorruptDataError("the sizes of the changelogs in a group are damaged", path=path)
    ends = list(accumulate(struct.unpack_from(f">{count}I", data, _START.size), initial=end + _CRC.size))
    if ends[-1] != len(data):
        raise CorruptDataError("a group of changelogs is truncated, or something follows it", path=path)
    return tuple(data[first:last] for first, last in pairwise(ends))
