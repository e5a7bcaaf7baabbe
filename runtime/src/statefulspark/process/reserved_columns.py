"""Columns that a keyed step adds in front of the user's; no user column may have one of these names."""

from __future__ import annotations

from typing import Final

__all__ = ["KEY_HASH", "RESERVED", "SLOT", "SOURCE"]

KEY_HASH: Final = "__kh"
"""int64: xxhash64 of the key columns, computed by Spark. Null marks a tick row, which has no data."""
SOURCE: Final = "__src"
"""int32: index of the source partition, which breaks ties between equal event times. In a tick row, the slot."""
SLOT: Final = "__slot"
"""int32: the slot that Spark shuffles the row to. Dropped after the shuffle."""

RESERVED: Final = (KEY_HASH, SOURCE, SLOT)
