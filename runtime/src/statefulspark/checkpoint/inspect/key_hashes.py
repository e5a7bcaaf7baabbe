"""Finds the key group of a key without Spark, by Spark's own hash of the key columns.

Spark's ``xxhash64`` is XXH64 of each column in turn; the hash of one column is the seed of the next. The checkpoint says by which columns and
types a step hashes (`checkpoint/formats/pipeline.py`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.checkpoint.formats.pipeline import StepKey
from statefulspark.keygroups import key_group_of_hash

_SEED: Final = 42
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_MASK: Final = (1 << 64) - 1
_LANES: Final = struct.Struct("<4Q")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_LONG_DIGITS: Final = 18
"""Spark hashes the unscaled value of decimals of at most so many digits as a bigint."""
_EXACT: Final = Context(prec=1000)
"""Python's own context would round to 28 digits."""


def key_group_of(metadata: CheckpointMetadata, uid: str, key: Any) -> int | None:
    """Return the key group of a key, None if the checkpoint does not say how the step hashes its keys.

    Args:
        metadata: The checkpoint.
        uid: The keyed step.
        key: As its codec decodes it: one value, or a tuple for several key columns.
    """
    step = metadata.pipeline.step(uid) if metadata.pipeline is not None else None
    found = key_hash(step, key) if step is not None else None
    return None if found is None else key_group_of_hash(found, metadata.max_parallelism)


def key_hash(step: StepKey, key: Any) -> int | None:
    """Return the hash of a key, a signed number of 64 bits as in Spark; None if the key is not of the columns and types by which the step hashes.

    Args:
        step: The key of the step.
        key: As its codec decodes it: one value, or a tuple for several key columns.
    """
    values = key if isinstance(key, tuple) else (key,)
    if len(values) != len(step.hashed):
        return None
    seed = _SEED
    for value, (_, kind) in zip(values, step.hashed, strict=True):
        data = _hashed_bytes(value, kind)
        if data is None:
            return None
        seed = xxh64(data, seed)
    return seed - (1 << 64) if seed >> 63 else seed


def xxh64(data: bytes, seed: int) -> int:
    """Return the XXH64 of bytes, 0 .. 2^64 - 1."""
    at = 0
    if len(data) >= _LANES.size:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        for at in range(0, len(data) - _LANES.size + 1, _LANES.size):
            lanes = [_round(lane, value) for lane, value in zip(lanes, _LANES.unpack_from(data, at), strict=True)]
        at += _LANES.size
        found = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        found = (seed + _P5) & _MASK
    found = (found + len(data)) & _MASK
    return _avalanche(_tail(found, data[at:]))


def _tail(found: int, rest: bytes) -> int:
    """Mix the last bytes, fewer than 32, into the hash."""
    at = 0
    while len(rest) - at >= 8:
        lane = int.from_bytes(rest[at : at + 8], "little")
        found = (_rotated(found ^ _round(0, lane), 27) * _P1 + _P4) & _MASK
        at += 8
    if len(rest) - at >= 4:
        lane = int.from_bytes(rest[at : at + 4], "little")
        found = (_rotated(found ^ (lane * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in rest[at:]:
        found = _rotated(found ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    return found


def _avalanche(found: int) -> int:
    found = (found ^ found >> 33) * _P2 & _MASK
    found = (found ^ found >> 29) * _P3 & _MASK
    return found ^ found >> 32


def _round(lane: int, value: int) -> int:
    return _rotated((lane + value * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _hashed_bytes(value: Any, kind: str) -> bytes | None:
    """Return the bytes that Spark hashes of a value, None for a type that it does not say so of."""
    digits = _DECIMAL.fullmatch(kind)
    if digits is not None:
        return _of_decimal(value, int(digits[1]), int(digits[2]))
    encode = _ENCODERS.get(kind)
    try:
        return None if encode is None else encode(value)
    except (struct.error, TypeError, AttributeError):
        # The key is not of the type by which the step hashes now.
        return None


def _of_decimal(value: Any, precision: int, scale: int) -> bytes | None:
    if not isinstance(value, Decimal) or not value.is_finite() or value.adjusted() >= precision:
        return None
    shifted = _EXACT.scaleb(value, scale)
    unscaled = int(shifted)
    if unscaled != shifted:
        return None
    if precision <= _LONG_DIGITS:
        return unscaled.to_bytes(8, "little", signed=True) if abs(unscaled) < 1 << 63 else None
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


def _micros(value: datetime) -> bytes:
    return struct.pack("<q", (value.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1))


def _binary(value: Any) -> bytes:
    return bytes(memoryview(value))  # not of an int, of which bytes() makes zeros


def _text(value: str) -> bytes:
    return value.encode()


def _days(value: date) -> bytes:
    return struct.pack("<i", (value - _EPOCH.date()).days)


def _int(value: int) -> bytes:
    return struct.pack("<i", value)


_ENCODERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "string": _text,
    "binary": _binary,
    "boolean": _int,
    "tinyint": _int,
    "smallint": _int,
    "int": _int,
    "bigint": lambda value: struct.pack("<q", value),
    "date": _days,
    "timestamp": _micros,
    "timestamp_ntz": _micros,
}
