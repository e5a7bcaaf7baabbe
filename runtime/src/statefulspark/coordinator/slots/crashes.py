"""Slots that die again and again at the same rows: a row that crashes its slot must end the job with a name, not restart it indefinitely.

A slot's process that ends without an error leaves nothing behind that says why. When a new incarnation registers while the batch that the one
before was given is not committed, that one has died in it. If both are processes of one executor, the slot has died alone, which a machine
that goes away does not do: a crash in native code, or the kernel's end for lack of memory. An executor that was lost counts half, since nodes
are drained and containers evicted, but not that often at the same rows.

A job that has processed further rows since has survived those that the slot died of, so the count starts again. Its position says that, not
the number of the batch: a job that goes back to its last checkpoint processes the same rows under other numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from statefulspark.coordinator.batches.log import Position
from statefulspark.errors import SlotCrashedError

DEATHS_MAX: Final = 8
"""Deaths of a slot's process alone, at the same rows; twice the tries that Spark gives a task, so that the query was started again meanwhile."""
_ALONE: Final = 2
_WITH_EXECUTOR: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _InBatch:
    """The newest batch whose rows an incarnation of a slot was given, the step they were for, and where the incarnation lives."""

    batch: int
    uid: str
    epoch: int
    executor: str


@dataclass(frozen=True, slots=True)
class _Deaths:
    """Deaths of a slot without progress of the job; ``position`` is the furthest, ``weight`` counts those with their executor half."""

    position: Position
    number: int = 0
    weight: int = 0


class CrashWatch:
    """Counts deaths of slots at the same rows; called by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[int, _InBatch] = {}
        self._deaths: dict[int, _Deaths] = {}
        self._report: Callable[[SlotCrashedError], None] = lambda _: None

    def on_failure(self, report: Callable[[SlotCrashedError], None]) -> None:
        """Call ``report`` with the failure of a slot that has died too often."""
        self._report = report

    def began(self, slot: int, batch: int, *, uid: str, epoch: int, executor: str) -> None:
        """Rows of ``batch`` are about to go to an incarnation of a slot."""
        with self._lock:
            self._slots[slot] = _InBatch(batch=batch, uid=uid, epoch=epoch, executor=executor)

    def ended(self, slot: int, then: str, *, epoch: int, committed: int, position: Position) -> None:
        """An incarnation of a slot has ended, because another one wants its place.

        Args:
            slot: The slot.
            then: The executor of the new incarnation.
            epoch: The incarnation that has ended.
            committed: The last committed batch.
            position: How far the job is.
        """
        with self._lock:
            seen = self._slots.get(slot)
            if seen is None or seen.epoch != epoch or seen.batch <= committed:
                return
            deaths = self._deaths.get(slot)
            if deaths is None or position > deaths.position:
                deaths = _Deaths(position)
            weight = deaths.weight + (_ALONE if seen.executor == then else _WITH_EXECUTOR)
            deaths = replace(deaths, number=deaths.number + 1, weight=weight)
            failed = weight >= DEATHS_MAX * _ALONE
            self._deaths[slot] = _Deaths(deaths.position) if failed else deaths
        if failed:
            self._report(_failure(slot, seen, deaths.number))

    def replaced(self, *, rescaled: bool) -> None:
        """Other slots take the place of all; with another parallelism, none has the rows of one before."""
        with self._lock:
            self._slots.clear()
            if rescaled:
                self._deaths.clear()


def _failure(slot: int, seen: _InBatch, deaths: int) -> SlotCrashedError:
    return SlotCrashedError(
        f"the process of slot {slot} died {deaths} times at the same rows, which it got for uid {seen.uid!r}, the last time in batch"
        f" {seen.batch}. No Python exception was raised. Check the executor's log for a crash in native code (Segmentation fault) or a"
        " kernel OOM kill (OOMKilled: increase spec.executor.memory). Filter the row that causes it, or fix the function"
    )
