"""BatchBudget: the bounds of a backend's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_KEYS_PER_CHECK_MAX: Final = 256
_KEYS_PER_CALL_MAX: Final = 16_384


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

    @property
    def keys_per_check(self) -> int:
        """Number of keys whose state may be changed before memory is compared with the budget."""
        return max(1, min(_KEYS_PER_CHECK_MAX, self.dirty_bytes // 4096))

    @property
    def keys_per_call(self) -> int:
        """Number of keys that a batch function gets at once. Its states report what they grow by, so it may be larger."""
        return max(self.keys_per_check, min(_KEYS_PER_CALL_MAX, self.dirty_bytes // 1024))
