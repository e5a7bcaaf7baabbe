"""Slots that die again and again in one batch: a row that crashes its slot must end the job with a name, not restart it indefinitely.

A slot's process that ends without an error leaves nothing behind that says why. When a new incarnation registers while the batch that the one
before was given is not committed, that one has died in it. If both are processes of one executor, the slot has died alone, which a machine
that goes away does not do: a crash in native code, or the kernel's end for lack of memory. An executor that was lost counts half, since nodes
are drained and containers evicted, but not that often within one batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from statefulspark.errors import UserFunctionError

DEATHS_MAX: Final = 8
"""Deaths of a slot's process alone, in one batch; twice the tries that Spark gives a task, so that the query was started again meanwhile."""
_ALONE: Final = 2
_WITH_EXECUTOR: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _InBatch:
    """A slot in a batch.

    Attributes:
        batch: The newest batch that it was given rows of.
        uid: A step that it was given rows for.
        epoch: The incarnation that was.
        executor: Where that lives.
        deaths: How many incarnations have died in this batch.
        weight: The same, those with their executor counted half.
    """

    batch: int
    uid: str
    epoch: int
    executor: str
    deaths: int = 0
    weight: int = 0


class CrashWatch:
    """Counts deaths of slots within a batch; called by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[int, _InBatch] = {}
        self._base = ""
        self._lost: dict[int, tuple[int, int]] = {}
        """Weight and number of the deaths of each slot that brought the job back to ``_base``."""
        self._report: Callable[[UserFunctionError], None] = lambda _: None

    def on_failure(self, report: Callable[[UserFunctionError], None]) -> None:
        """Call ``report`` with the failure of a slot that has died too often."""
        self._report = report

    def began(self, slot: int, batch: int, *, uid: str, epoch: int, executor: str) -> None:
        """Rows of ``batch`` are about to go to an incarnation of a slot."""
        with self._lock:
            known = self._slots.get(slot)
            if known is not None and known.batch == batch:
                self._slots[slot] = replace(known, uid=uid, epoch=epoch, executor=executor)
            else:
                self._slots[slot] = _InBatch(batch=batch, uid=uid, epoch=epoch, executor=executor)

    def registered(self, slot: int, executor: str, *, before: int, committed: int) -> None:
        """A new incarnation of a slot takes the place of the one of epoch ``before``."""
        with self._lock:
            known = self._slots.get(slot)
            if known is None or known.epoch != before or known.batch <= committed:
                return
            weight = known.weight + (_ALONE if known.executor == executor else _WITH_EXECUTOR)
            known = replace(known, deaths=known.deaths + 1, weight=weight)
            failed = weight >= DEATHS_MAX * _ALONE
            self._slots[slot] = replace(known, deaths=0, weight=0) if failed else known
        if failed:
            self._report(_failure(slot, known))

    def lost_state(self, slot: int, *, alone: bool, base: str) -> None:
        """A slot is gone, and with it state that brings the job back to the checkpoint ``base``: batches that run again have other numbers.

        Args:
            slot: The slot.
            alone: Whether its executor lives.
            base: URL of the checkpoint; with another one, the job has come further.
        """
        with self._lock:
            if base != self._base:
                self._base, self._lost = base, {}
            weight, deaths = self._lost.get(slot, (0, 0))
            weight, deaths = weight + (_ALONE if alone else _WITH_EXECUTOR), deaths + 1
            self._lost[slot] = (weight, deaths)
            failed = weight >= DEATHS_MAX * _ALONE
            known = self._slots.get(slot)
            if failed:
                self._lost = {}
        if failed and known is not None:
            self._report(_failure(slot, replace(known, deaths=deaths)))

    def forget(self) -> None:
        """Other slots take the place of all."""
        with self._lock:
            self._slots.clear()


def _failure(slot: int, seen: _InBatch) -> UserFunctionError:
    return UserFunctionError(
        f"the process of slot {slot} crashed {seen.deaths} times in batch {seen.batch} without raising a Python exception",
        uid=seen.uid,
        key_group=None,
        user_traceback=(
            "A row of this batch, or the memory that it takes, probably crashes it: check the executor's log for a crash in native code"
            " (Segmentation fault) or a kernel OOM kill (OOMKilled: increase spec.executor.memory). Filter the row, or fix the function, and"
            " run the job again; it resumes from this batch."
        ),
    )
