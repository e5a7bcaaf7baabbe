"""Formats a point in time for people."""

from __future__ import annotations

from datetime import UTC, datetime


def at(milliseconds: int) -> str:
    """Return a time as text, to the second, in UTC."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "end of time" if milliseconds > 0 else "beginning of time"  # watermarks: the extreme longs mean just that
