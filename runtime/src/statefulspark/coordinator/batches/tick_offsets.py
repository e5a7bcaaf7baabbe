"""Decides the offsets of the tick sources: a new offset starts a batch, so there is one when a timer is due, and when state of an idle job expires.

Offsets are times, but only their order matters. The tick source passes the offset that the last batch ended with, and a later one is
answered if a timer is due, also when the clock has gone back since.
"""

from __future__ import annotations

from collections.abc import Iterable

from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.query.lifecycle import QueryLifecycle
from statefulspark.rpc.messages.batches import Tick, TickAnswer, Wait


def tick_answer(
    request: Tick, batches: BatchLog, query: QueryLifecycle, *, now_ms: int, ready: bool, cleanup_due_ms: Iterable[int | None]
) -> TickAnswer | Wait:
    """Answer a tick source. The caller holds the batch lock.

    Args:
        request: its step and its offset in the last batch.
        batches: the job's batches, with the timers of its slots.
        query: the query that the tick source is in.
        now_ms: current time.
        ready: True if every slot has reported its timers.
        cleanup_due_ms: when the cleanup of the step's expired state needs a batch, as each slot reports it.
    """
    uid, after, until_ms = request.uid, request.after, query.available_until_ms
    if until_ms is not None and (query.paused or not ready):
        return Wait(reason="timers")  # the query would end if there were no new offset
    due_ms = now_ms if until_ms is None else min(now_ms, until_ms)
    due = not query.paused and batches.tick_due(uid, due_ms, drain=query.draining)
    if not due and not query.paused and not query.draining and until_ms is None:
        # Queries that end by themselves, and jobs that are drained, do not wait for state to expire.
        due = batches.cleanup_due(cleanup_due_ms, now_ms)
    return TickAnswer(offset=max(now_ms, after + 1) if due else after)
