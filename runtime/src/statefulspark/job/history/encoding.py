"""The stored form of a job's history.

Layout (big-endian)::

    "SSJH" | version u8 = 2 to 4 | raw length u32 | crc32 of the stored bytes u32 | stored bytes (zlib)
    raw: JSON (UTF-8), the members of `JobHistory`

Version 1 is the same without metrics of functions and backlogs in its samples, version 2 without formats of savepoints, version 3 without
events of the kind ``return``. A history is stored in the lowest version above 1 that has all of it, which earlier releases read.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from pydantic import TypeAdapter, ValidationError

from statefulspark.coordinator.history import JobHistory
from statefulspark.errors import CorruptDataError, IncompatibleFormatError, InternalError
from statefulspark.job.history.samples import SAMPLES_MAX

MAGIC: Final = b"SSJH"
VERSION: Final = 4
_WITHOUT_RETURNS: Final = 3
_WITHOUT_FORMATS: Final = 2
_READ: Final = range(1, VERSION + 1)
RAW_BYTES_MAX: Final = 8 << 20
"""More than the bounds of a history can add up to."""
STORED_BYTES_MAX: Final = RAW_BYTES_MAX + (64 << 10)
_SAMPLES_MAX: Final = 2 * SAMPLES_MAX
"""Joining many more would take long."""

_START = struct.Struct(">4sBII")
_MODEL = TypeAdapter(JobHistory)


def encode_history(history: JobHistory) -> bytes:
    """Return the bytes of a history that is within its bounds."""
    raw = _MODEL.dump_json(history, exclude_defaults=True)
    if len(raw) > RAW_BYTES_MAX:
        raise InternalError(f"the job's history has {len(raw)} bytes, more than its bounds allow")
    stored = zlib.compress(raw, 6)
    return _START.pack(MAGIC, _version(history), len(raw), zlib.crc32(stored)) + stored


def _version(history: JobHistory) -> int:
    if any(each.kind == "return" for each in history.events):
        return VERSION
    return _WITHOUT_RETURNS if any(each.format != "native" for each in history.snapshots) else _WITHOUT_FORMATS


def decode_history(data: bytes, *, path: str) -> JobHistory:
    """Read a history.

    Args:
        data: The object's bytes.
        path: Its name, for the error text.

    Raises:
        IncompatibleFormatError: Written in a version that this release does not read.
        CorruptDataError: Damaged.
    """
    if data[:4] != MAGIC or len(data) < _START.size:
        raise CorruptDataError("not a job's history", path=path)
    _, version, raw_length, crc = _START.unpack_from(data)
    if version not in _READ:
        raise IncompatibleFormatError(
            "this release cannot read the history's format", path=path, expected=f"version 1 to {VERSION}", found=f"version {version}"
        )
    if zlib.crc32(data[_START.size :]) != crc or raw_length > RAW_BYTES_MAX:
        raise CorruptDataError("the job's history is damaged", path=path)
    try:
        raw = zlib.decompressobj().decompress(data[_START.size :], raw_length or 1)
        if len(raw) != raw_length:
            raise CorruptDataError("the job's history is damaged", path=path)
        found = _MODEL.validate_json(raw)
    except (zlib.error, ValidationError) as exc:
        raise CorruptDataError("the job's history is damaged", path=path) from exc
    if len(found.samples) > _SAMPLES_MAX or not _in_order(found):
        raise CorruptDataError("the job's history is damaged", path=path)
    return found


def _in_order(history: JobHistory) -> bool:
    ends = [0, *(sample.to_ms for sample in history.samples)]
    return all(end <= sample.from_ms <= sample.to_ms for end, sample in zip(ends, history.samples, strict=False))
