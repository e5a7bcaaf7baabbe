"""BatchBudget: the bounds of a backend's memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchBudget:
    """Bounds of a backend's memory in Python objects, estimated.

    Attributes:
        cache_bytes: For the cache of unchanged entries; 0 keeps hardly any.
        dirty_bytes: For changes; a batch that changes more spills to local disk. While a snapshot is taken, what batches commit
            meanwhile is held in up to seven eighths of it, more goes to local disk, and the running batch has what is left.
    """

    cache_bytes: int = 128 << 20
    dirty_bytes: int = 64 << 20
