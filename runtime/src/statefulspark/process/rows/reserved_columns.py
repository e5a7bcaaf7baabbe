"""Columns that a keyed step adds in front of the user's; no user column may have one of these names."""

from __future__ import annotations

from typing import Final

__all__ = ["EVENT_TIME", "FIRST", "KEY_HASH", "PART", "RESERVED", "SECOND", "SECOND_SOURCES", "SLOT", "SOURCE", "local_key_column"]

KEY_HASH: Final = "__kh"
"""int64: xxhash64 of the key columns, computed by Spark. Null marks a tick row, which has no data."""
SOURCE: Final = "__src"
"""int32: index of the source partition, which breaks ties between equal event times. In a tick row, the slot."""
SLOT: Final = "__slot"
"""int32: the slot that Spark shuffles the row to. Dropped after the shuffle."""

FIRST: Final = "__1"
"""struct: the columns of the first input's row, in a step with two inputs; null in a row of the second input, and in a tick row."""
SECOND: Final = "__2"
"""struct: the columns of the second input's row, likewise."""
EVENT_TIME: Final = "__at"
"""The event time of a row of either input. A slot adds it; it is not sent."""
SECOND_SOURCES: Final = 1 << 30
"""Added to ``__src`` of the second input's rows: of rows of a key with equal event times, those of the first input come first."""
PART: Final = "__part"
"""int32: the first field of ``__2`` in rows of a broadcast stream: index of the source partition. Their ``__kh`` is null, and ``__src`` is the slot."""

RESERVED: Final = (KEY_HASH, SOURCE, SLOT)


def local_key_column(index: int) -> str:
    """Name of the key column number ``index`` of a row of either input. A slot adds it; it is not sent."""
    return f"__k{index}"
