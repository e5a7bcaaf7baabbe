"""Finds the stored entries that have expired, for `Sweep`: by comparing bytes, without decoding values."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from statefulspark.state.encoding.values import EXPIRING, EXPIRING_NONE, expiry_of
from statefulspark.state.tables.sweep import Swept

_EXPIRY: Final = struct.Struct(">Bq")
_VALUE: Final = bytes([EXPIRING])
_AFTER_VALUES: Final = bytes([EXPIRING + 1])
_NONE: Final = bytes([EXPIRING_NONE])
_AFTER_NONES: Final = bytes([EXPIRING_NONE + 1])
_EXPIRY_MAX: Final = (1 << 63) - 1


def swept_values(entries: Iterator[tuple[bytes, bytes]], now_ms: int) -> Swept:
    """Check values, which are never None.

    Expiries are positive and big-endian, so values that expire are in the order of their expiries. Those of another version do not expire.
    """
    expired_until = _EXPIRY.pack(EXPIRING, min(now_ms, _EXPIRY_MAX - 1) + 1)
    first = _AFTER_VALUES
    deletes: list[bytes] = []
    key, count = None, 0
    for key, data in entries:
        count += 1
        # In this order, every value costs two comparisons.
        if data < expired_until:
            if data >= _VALUE:
                deletes.append(key)
        elif data < first:
            first = data
    return Swept(deletes, [], len(deletes), key, count, count, expiry_of(first))


def swept_map_entries(entries: Iterator[tuple[bytes, bytes]], now_ms: int) -> Swept:
    """Check entries of maps, as `swept_values`. None is a version of its own."""
    now_ms = min(now_ms, _EXPIRY_MAX - 1)
    values_until, nones_until = _EXPIRY.pack(EXPIRING, now_ms + 1), _EXPIRY.pack(EXPIRING_NONE, now_ms + 1)
    first_value, first_none = _AFTER_VALUES, _AFTER_NONES
    deletes: list[bytes] = []
    key, count = None, 0
    for key, data in entries:
        count += 1
        # In this order, most entries that live cost two comparisons.
        if data < first_value:
            if data >= values_until:
                first_value = data
            elif data >= _VALUE:
                deletes.append(key)
        elif _NONE <= data < first_none:
            if data < nones_until:
                deletes.append(key)
            else:
                first_none = data
    left = [expiry for first in (first_value, first_none) if (expiry := expiry_of(first)) is not None]
    return Swept(deletes, [], len(deletes), key, count, count, min(left, default=None))
