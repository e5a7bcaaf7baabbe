"""Notices about slots that a user must see: one line when a slot is lost, one when it serves again."""

from __future__ import annotations

import threading
import time

import structlog

from statefulspark.coordinator.slot_state import Slot
from statefulspark.logs.levels import SLOTS_LOGGER

_log = structlog.get_logger(SLOTS_LOGGER)


class SlotNotices:
    """Logs each loss of a slot once, until the slot serves again; called by many threads, without locks.

    Args:
        silent: Log nothing: in tests of functions, where slots are killed on purpose.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._lock = threading.Lock()
        self._lost_s: dict[int, float] = {}

    def lost(self, slot: Slot, why: str) -> None:
        """An incarnation that served does so no more.

        Args:
            slot: As it was.
            why: The reason, without a subject.
        """
        with self._lock:
            if self._silent or slot.index in self._lost_s:
                return
            self._lost_s[slot.index] = time.monotonic()
        _log.warning(f"slot {slot.index} was lost: {why}. Its rows wait until it is restored", host=slot.host, pid=slot.pid)

    def serves(self, slot: Slot) -> None:
        """The slot is ready."""
        with self._lock:
            lost_s = self._lost_s.pop(slot.index, None)
        if lost_s is None:
            return
        restored = slot.restored
        fetched = {"downloaded_bytes": restored.downloaded_bytes, "local_bytes": restored.local_bytes} if restored is not None else {}
        _log.info(f"slot {slot.index} was restored after {time.monotonic() - lost_s:.1f} s", host=slot.host, pid=slot.pid, **fetched)
