"""Slot: what the driver knows of one slot at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.checkpoint.restore.progress import RestoredBytes
from statefulspark.rpc.messages.heartbeat import SlotReport

STARTING = "starting"
RESTORING = "restoring"
READY = "ready"
LOST = "lost"


@dataclass(frozen=True, slots=True)
class Slot:
    """The driver's view of one slot at one moment."""

    index: int
    epoch: int = 0
    """0 = never registered in this table."""
    state: str = STARTING
    executor: str = ""
    host: str = ""
    pid: int = 0
    location: str = ""
    unix: str = ""
    incarnations: int = 0
    attempt: int = -1
    """Attempt number of the newest copy of the user's function in this slot, from 0; see `SlotTable.reopened`."""
    ready_epoch: int = 0
    """Epoch of the last incarnation that got ready; 0 = none did."""
    last_heartbeat_s: float = 0.0
    restored: RestoredBytes | None = None
    """Of the state that this incarnation restores; None before it knows how much that is."""
    report: SlotReport | None = None
    """Of the last heartbeat; None before the first one of this incarnation."""

    @property
    def served(self) -> bool:
        """True if any incarnation got ready."""
        return self.ready_epoch > 0

    @property
    def restarts(self) -> int:
        """Number of times that the slot was restarted."""
        return max(0, self.incarnations - 1)
