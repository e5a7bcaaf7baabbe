"""Finds the stored entries that have expired, for `Sweep`: by comparing bytes, without decoding values."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from statefulspark.state.encoding.values import EXPIRING, EXPIRING_NONE, expiry_of
from statefulspark.state.store.base import Change
from statefulspark.state.tables.sweep import Swept

_EXPIRY: Final = struct.Struct(">Bq")
_VALUE: Final = bytes([EXPIRING])
_AFTER_VALUES: Final = bytes([EXPIRING + 1])
_NONE: Final = bytes([EXPIRING_NONE])
_AFTER_NONES: Final = bytes([EXPIRING_NONE + 1])
_EXPIRY_MAX: Final = (1 << 63) - 1


def swept_values(entries: Iterator[tuple[bytes, bytes]], now_ms: int) -> Swept:
    """Check entries that expire as a whole: values and entries of maps.

    Expiries are positive and big-endian, so entries of one version are in the order of their expiries. Those of another version do not expire.
    """
    now_ms = min(now_ms, _EXPIRY_MAX - 1)
    values_until, nones_until = _EXPIRY.pack(EXPIRING, now_ms + 1), _EXPIRY.pack(EXPIRING_NONE, now_ms + 1)
    first_value, first_none = _AFTER_VALUES, _AFTER_NONES
    changes: list[Change] = []
    key, count = None, 0
    for key, data in entries:
        count += 1
        # In this order, most entries that live cost two comparisons.
        if data < first_value:
            if data >= values_until:
                first_value = data
            elif data >= _VALUE:
                changes.append((key, None))
        elif _NONE <= data < first_none:
            if data < nones_until:
                changes.append((key, None))
            else:
                first_none = data
    left = [expiry for first in (first_value, first_none) if (expiry := expiry_of(first)) is not None]
    return Swept(changes, len(changes), len(changes), key, count, count, min(left, default=None))
