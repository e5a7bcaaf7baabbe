"""Zstandard, bounded on both sides: a few KiB of stored bytes never stand for gigabytes.

Zstandard shrinks zeros more than 30,000 times, and an entry of a few bytes becomes Python objects of a hundred. A reader therefore accepts at
most `_FREE` of cost, or `_RATIO` times the stored bytes. A writer whose contents compress better adds a skippable frame, which decoders ignore.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

_FREE: Final = 64 << 20
_RATIO: Final = 1024
_OBJECT_BYTES: Final = 128
"""Memory that an entry takes beside its bytes."""
_SKIPPABLE: Final = struct.Struct("<II")
_SKIPPABLE_MAGIC: Final = 0x184D2A50


def compress(raw: bytes, entries: int) -> bytes:
    """Returns the stored bytes of ``raw``, which has that many entries."""
    stored: bytes = pa.compress(raw, codec="zstd", asbytes=True)
    lacking = -(-_cost(len(raw), entries) // _RATIO) - len(stored)
    if lacking <= 0 or _cost(len(raw), entries) <= _FREE:
        return stored
    return b"".join((stored, _SKIPPABLE.pack(_SKIPPABLE_MAGIC, lacking), bytes(lacking)))


def decompress(stored: bytes, raw_length: int, entries: int) -> bytes:
    """Returns the ``raw_length`` bytes that `compress` was given.

    Raises:
        ValueError: The bytes are damaged, or stand for too much.
    """
    if not may_stand_for(len(stored), raw_length, entries):
        raise ValueError("too large")
    try:
        raw: bytes = pa.decompress(stored, decompressed_size=raw_length, codec="zstd", asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError("damaged") from error
    if len(raw) != raw_length:
        raise ValueError("damaged")
    return raw


def may_stand_for(stored_length: int, raw_length: int, entries: int) -> bool:
    """True if so many stored bytes may have so many bytes and entries."""
    return _cost(raw_length, entries) <= max(_FREE, _RATIO * stored_length)


def _cost(raw_length: int, entries: int) -> int:
    return raw_length + _OBJECT_BYTES * entries
