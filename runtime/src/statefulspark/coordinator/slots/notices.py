"""Notices about slots that a user must see: one line when a slot is lost, one when it serves again, and one event for both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from statefulspark.coordinator.slots.state import Slot
from statefulspark.logs.levels import SLOTS_LOGGER
from statefulspark.memory.baselines import MEBIBYTE

_log = structlog.get_logger(SLOTS_LOGGER)

SlotRestored = Callable[[int, str], None]
"""Takes the number of a slot that was lost and serves again, and a sentence with the cause, what was restored, and how long it took."""


class SlotNotices:
    """Logs each loss of a slot once, until the slot serves again; called by many threads, without locks.

    Args:
        silent: Log nothing: in tests of functions, where slots are killed on purpose.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._lock = threading.Lock()
        self._lost: dict[int, tuple[float, str]] = {}
        self._told: SlotRestored = lambda *_: None

    def on_restored(self, told: SlotRestored) -> None:
        """Call ``told`` for each slot that was lost, once it serves again."""
        self._told = told

    def lost(self, slot: Slot, why: str) -> None:
        """An incarnation that served does so no more.

        Args:
            slot: As it was.
            why: The reason, without a subject.
        """
        with self._lock:
            if self._silent or slot.index in self._lost:
                return
            self._lost[slot.index] = time.monotonic(), why
        _log.warning(f"slot {slot.index} was lost: {why}. Its rows wait until it is restored", host=slot.host, pid=slot.pid)

    def serves(self, slot: Slot) -> None:
        """The slot is ready."""
        with self._lock:
            lost = self._lost.pop(slot.index, None)
        if lost is None:
            return
        lost_s, why = lost
        took, restored = f"{time.monotonic() - lost_s:.1f} s", slot.restored
        fetched = {"downloaded_bytes": restored.downloaded_bytes, "local_bytes": restored.local_bytes} if restored is not None else {}
        _log.info(f"slot {slot.index} was restored after {took}", host=slot.host, pid=slot.pid, **fetched)
        files = (
            f", with {restored.downloaded_bytes / MEBIBYTE:.1f} MiB from storage and {restored.local_bytes / MEBIBYTE:.1f} MiB from the local disk"
            if restored is not None
            else ""
        )
        self._told(slot.index, f"slot {slot.index} was lost: {why}. It was restored after {took}{files}")
