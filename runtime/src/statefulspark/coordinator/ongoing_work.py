"""Progress of long work: restoring slots, and the checkpoint or savepoint in progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRestoring:
    """Progress of a slot's restore."""

    downloaded_bytes: int
    """Of complete and verified files, with those that were still on the machine."""
    total_bytes: int
    """Of all files that it needs; what it does with them takes time too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSnapshot:
    """The checkpoint or savepoint that is being taken."""

    id: int
    kind: Literal["checkpoint", "savepoint"]
    started_ms: int
    """Milliseconds since the epoch."""
    slots_done: int
    """Slots that have uploaded their part."""
    slots: int
    uploaded_bytes: int = 0
    """Of files that storage has."""
    total_bytes: int = 0
    """Of all files that the slots upload, or copy within storage; grows while slots still write their snapshots."""
