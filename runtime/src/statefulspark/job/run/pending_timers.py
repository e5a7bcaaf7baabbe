"""Lists the timers of a job that have not fired yet."""

from __future__ import annotations

from statefulspark.coordinator.batches.log import UNKNOWN_TIMER_MS
from statefulspark.coordinator.controls import PendingTimers
from statefulspark.coordinator.view import CoordinatorView
from statefulspark.state.timers import TIMER_KINDS


def pending_timers(view: CoordinatorView) -> dict[str, PendingTimers]:
    """Return the pending timers per uid that has any; never blocks on slots."""
    event: dict[str, int] = {}
    processing: dict[str, int] = {}
    for (uid, _), times in view.timers.items():
        for first, time_ms in zip((event, processing), times, strict=True):
            if time_ms is not None and time_ms != UNKNOWN_TIMER_MS:
                first[uid] = min(time_ms, first.get(uid, time_ms))
    counts = _counts(view)
    return {
        uid: PendingTimers(number=counts.get(uid) or None, next_event_ms=event.get(uid), next_processing_ms=processing.get(uid))
        for uid in sorted(event.keys() | processing.keys())
    }


def _counts(view: CoordinatorView) -> dict[str, int]:
    """Return the estimated number of timers per uid, as slots last reported it."""
    owners = {state.state_id: state.uid for state in view.states if state.name in TIMER_KINDS}
    found: dict[str, int] = {}
    for slot in view.slots:
        for number, size in slot.report.states.items() if slot.report is not None else ():
            if (uid := owners.get(number)) is not None:
                found[uid] = found.get(uid, 0) + size.entries
    return found
