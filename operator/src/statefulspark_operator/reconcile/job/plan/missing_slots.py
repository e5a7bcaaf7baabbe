"""Slots that do not run while the driver does, and the reason that Kubernetes gives for their executors. Pure."""

from __future__ import annotations

from typing import Final

from statefulspark_operator.api.conditions import ConditionType
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.reconcile.job.plan.draft import Draft

REASON: Final = "SlotsMissing"


def failure_of(draft: Draft) -> Failure | None:
    """Missing slots as a failure. Without a reason from Kubernetes, slots count as missing only once the driver has started its query."""
    driver, pod, cause = draft.observed.driver, draft.observed.pod, draft.observed.executor_trouble
    if pod is None or pod.phase != "Running" or pod.deleting:
        return None
    if driver is None:
        what = "The executors do not run" if cause is not None else None
    elif driver.runs or driver.state not in {"CREATED", "RUNNING"}:
        return None
    else:
        lost = driver.parallelism - sum(slot.state == "RUNNING" for slot in driver.slots)
        what = f"{lost} of {driver.parallelism} slots are not running" if cause is not None or driver.state == "RUNNING" else None
    if what is None:
        return None
    return Failure(reason=REASON, message=what if cause is None else f"{what} ({cause.reason}). {cause.message}")


def report(draft: Draft) -> None:
    """Adds an event when a condition begins to name a reason for missing slots, or another one. Losses of a few seconds have no reason."""
    cause = draft.observed.executor_trouble
    if cause is None:
        return
    now, before = (
        [
            each
            for each in status.conditions
            if each.type is ConditionType.RUNNING and each.reason == REASON and f"({cause.reason})" in each.message
        ]
        for status in (draft.status, draft.observed.status)
    )
    if now and not before:
        draft.record_event(REASON, now[0].message, warning=True)
