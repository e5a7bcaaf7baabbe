"""Bundles: several small files in one block of bytes.

Batch records and checkpoints store the files of the local Spark checkpoint location as bundles.

Layout (big-endian)::

    "SSLB" | version u8 = 1 | raw length u32 | crc32 of the stored bytes u32 | stored bytes (zlib)
    raw: files u32 | per file: length of path u16 | path (UTF-8) | length u32 | bytes; sorted by path
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

from statefulspark.checkpoint.formats.paths import leaves_folder
from statefulspark.errors import CorruptDataError, IncompatibleFormatError, InvalidInputError

MAGIC = b"SSLB"
VERSION = 1
RAW_BYTES_MAX = 1 << 30
"""Largest content of a bundle, 1 GiB: logs of sources are megabytes; more means that something else is in the folder."""

_FILES_MAX = 1 << 20
_START = struct.Struct(">4sBII")
_COUNT = struct.Struct(">I")
_PATH = struct.Struct(">H")
_SIZE = struct.Struct(">I")


def encode_bundle(files: Mapping[str, bytes]) -> bytes:
    """Pack files.

    Args:
        files: Content by relative path (``/`` between parts, at most 65,535 bytes).

    Raises:
        InvalidInputError: More than 1 GiB in total.
    """
    parts = [_COUNT.pack(len(files))]
    for path in sorted(files):
        name = path.encode()
        parts += (_PATH.pack(len(name)), name, _SIZE.pack(len(files[path])), files[path])
    raw = b"".join(parts)
    if len(raw) > RAW_BYTES_MAX or len(files) > _FILES_MAX:
        raise InvalidInputError(
            "the local Spark checkpoint location holds more than 1 GiB of logs, or a million files",
            field="checkpointLocation",
            remedy="Lower spark.sql.streaming.fileSource.log.compactInterval, or use a source that does not keep a list of all its files.",
        )
    stored = zlib.compress(raw, 6)
    return _START.pack(MAGIC, VERSION, len(raw), zlib.crc32(stored)) + stored


def decode_bundle(data: bytes, *, path: str) -> dict[str, bytes]:
    """Unpack files.

    Args:
        data: The bundle.
        path: Name of the object that carries it, for the error text.

    Raises:
        CorruptDataError: Damaged, or a path in it leads outside the folder.
        IncompatibleFormatError: Written in a version this release does not read.
    """
    if data[:4] != MAGIC or len(data) < _START.size:
        raise CorruptDataError("not a bundle of files", path=path)
    _, version, raw_length, crc = _START.unpack_from(data)
    if version != VERSION:
        raise IncompatibleFormatError(
            "this release cannot read the bundle's format. Use the release that wrote it, or a later one",
            path=path,
            expected=f"version {VERSION}",
            found=f"version {version}",
        )
    if zlib.crc32(data[_START.size :]) != crc or raw_length > RAW_BYTES_MAX:
        raise CorruptDataError("the bundle of files is damaged", path=path)
    try:
        raw = zlib.decompressobj().decompress(data[_START.size :], raw_length or 1)
        if len(raw) != raw_length:
            raise CorruptDataError("the bundle of files is damaged", path=path)
        return _split(raw, path)
    except (zlib.error, struct.error, UnicodeDecodeError) as exc:
        raise CorruptDataError("the bundle of files is damaged", path=path) from exc


def _split(raw: bytes, path: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    (count,) = _COUNT.unpack_from(raw)
    position = _COUNT.size
    if count > _FILES_MAX:
        raise CorruptDataError("the bundle of files is damaged", path=path)
    for _ in range(count):
        (length,) = _PATH.unpack_from(raw, position)
        position += _PATH.size
        name = raw[position : position + length].decode()
        position += length
        (size,) = _SIZE.unpack_from(raw, position)
        position += _SIZE.size
        if leaves_folder(name):
            raise CorruptDataError("the bundle names a file outside its folder", path=path)
        files[name] = raw[position : position + size]
        position += size
    if position != len(raw):
        raise CorruptDataError("the bundle of files is damaged", path=path)
    return files
