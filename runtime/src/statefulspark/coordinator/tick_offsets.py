"""Decides the offsets of the tick sources: a new offset starts a batch, so there is one whenever a timer is due.

Offsets are times, but only their order matters. The tick source passes the offset that the last batch ended with, and a later one is
answered if a timer is due, also when the clock has gone back since.
"""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.coordinator.batch_log import BatchLog
from statefulspark.rpc.messages.batches import Tick, TickAnswer, Wait


@dataclass(slots=True)
class TickOffsets:
    """The offsets of all tick sources of a job; the caller guards it with the batch lock."""

    batches: BatchLog
    until_ms: int | None = None
    """When the running query started, if it ends by itself (``trigger(availableNow=True)``): it fires no processing-time timers of later."""

    def answer(self, request: Tick, now_ms: int, *, drain: bool, paused: bool, ready: bool) -> TickAnswer | Wait:
        """Answer a tick source.

        Args:
            request: its step and its offset in the last batch.
            now_ms: current time.
            drain: whether every event-time timer is due.
            paused: whether no batch may begin.
            ready: whether every slot has reported its timers.
        """
        uid, after = request.uid, request.after
        if self.until_ms is not None and (paused or not ready):
            return Wait(reason="timers")  # the query would end if there were no new offset
        due_ms = now_ms if self.until_ms is None else min(now_ms, self.until_ms)
        due = not paused and self.batches.tick_due(uid, due_ms, drain=drain)
        return TickAnswer(offset=max(now_ms, after + 1) if due else after)
