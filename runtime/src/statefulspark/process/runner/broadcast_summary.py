"""BroadcastSummary: what a slot acknowledges of the rows of a broadcast stream."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BroadcastSummary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastSummary:
    """The rows of a broadcast stream in one batch; equal in all slots."""

    rows: int
    size_bytes: int
    """As Arrow columns."""
    digest: str
    """SHA-256 of the rows in the order in which they were processed, in hexadecimal."""
