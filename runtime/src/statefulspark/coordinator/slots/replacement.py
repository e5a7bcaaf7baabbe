"""Slot replacement: when a slot counts as lost, and when its Spark job is submitted again. Pure.

==================================================  ====================================================================================
what happens to a slot                              what follows
==================================================  ====================================================================================
an exchange or a snapshot cannot reach it, and its  it is LOST: it gets no rows until its next heartbeat (`is_back`), or until another
last heartbeat is older than `LOST_AFTER_S`         incarnation of it registers
it sends no heartbeat for `SILENT_AFTER_S`          it no longer takes up a place on its executor (`occupies`), so that another can
its process or its executor is gone                 Spark runs its task again, a few times; the new process registers, which gives it the
                                                    next epoch and fences the one before (`slots.table`)
it cannot reach the coordinator for ``orphan_s``    its process ends with an error (`slot/process.py`), and Spark runs its task again
its task ends without an error                      the slot supervisor submits it again (`resubmit_pause_s`)
its Spark job fails                                 the slot supervisor submits it again, or the job fails (`SlotRestarts`)
its process dies again and again while it restores  as above: the job fails, however often the strategy would try again
it dies again and again at the same rows            the query fails, and the restart strategy applies (`slots.crashes`)
==================================================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from statefulspark.coordinator.slots.state import LOST, READY, RESTORING, Slot

LOST_AFTER_S: Final = 2.0
"""Age of the last heartbeat at which a slot that cannot be reached counts as lost; slots send one every second."""
SILENT_AFTER_S: Final = 10.0
"""Age of the last heartbeat at which a slot no longer counts for its executor."""
FAILURES_BEFORE_SERVING: Final = 3
"""A slot that never served fails for a reason that trying again does not cure, such as a module that is missing."""
CRASHES_IN_RESTORE: Final = 8
"""Spark tries each several times. A file that crashes the library that reads it does so each time."""
_AGAIN_S: Final = 0.2
_DECLINED_S: Final = 0.3


def is_lost(slot: Slot, now_s: float) -> bool:
    """Return True if a slot that could not be reached counts as lost. One with a recent heartbeat was merely busy."""
    return slot.state == READY and now_s - slot.last_heartbeat_s > LOST_AFTER_S


def is_back(slot: Slot) -> bool:
    """Return True if a heartbeat makes this slot ready again: it was only slow, and nothing has fenced it."""
    return slot.state == LOST and bool(slot.location)


def occupies(slot: Slot, now_s: float, *, silent_s: float = SILENT_AFTER_S) -> bool:
    """Return True if the slot takes up a place on its executor."""
    return slot.state in (READY, RESTORING) and now_s - slot.last_heartbeat_s < silent_s


def resubmit_pause_s(*, declined: bool) -> float:
    """Return the seconds until a slot whose task ended without an error is submitted again.

    Args:
        declined: True if the coordinator refused the process, because its executor has its share of slots or an older checkpoint must be
            restored; otherwise a newer incarnation has fenced it.
    """
    return _DECLINED_S if declined else 0.0


@dataclass(slots=True, kw_only=True)
class SlotRestarts:
    """When a slot is submitted again whose Spark job has failed, which is after Spark has tried its task several times.

    A slot that has served the job before is a matter of the restart strategy, like the query, unless its process dies each time before it serves
    again. One that never has is retried only a few times.
    """

    strategy: Callable[[float], float | None]
    """The job's; returns seconds to wait from a monotonic time, or None to stop retrying."""
    failures: dict[tuple[int, int], int] = field(default_factory=dict)
    """By slot and its last incarnation that served: failures of one that never did, crashes of one that did."""

    def next_pause_s(self, slot: Slot, now_s: float, *, crashed: bool = False) -> float | None:
        """Return the seconds to wait before the slot is submitted again, or None to stop retrying.

        Args:
            slot: As it was when it failed.
            now_s: A monotonic clock.
            crashed: True if its process died of a signal, and the job has no strategy of its own for that.
        """
        if slot.state == READY:  # it served when it was lost, so it has not failed to start
            return _AGAIN_S
        if slot.served and not crashed:
            return self.strategy(now_s)
        key = slot.index, slot.ready_epoch
        failures = self.failures[key] = self.failures.get(key, 0) + 1
        if slot.served:
            return None if failures >= CRASHES_IN_RESTORE else self.strategy(now_s)
        return None if failures >= FAILURES_BEFORE_SERVING else _AGAIN_S * 2.0**failures
