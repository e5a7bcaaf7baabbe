"""Jobs whose batches fail while the driver runs: reported as degraded, and failed after ``spec.upgradeTimeout``. Pure.

The driver counts consecutive failures and resets the count with the next committed batch. After the timeout the job is rolled back to the
last stable spec if another one is running, otherwise it is `FAILED`. The driver keeps retrying; a successful batch makes the job run again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.jobs import LifecycleState
from statefulspark_operator.reconcile.job.plan import rollback
from statefulspark_operator.reconcile.job.plan.draft import Draft

REASON: Final = "BatchesFail"
_POLL_S: Final = 15.0


def failure_of(draft: Draft) -> Failure | None:
    """The last error of a driver whose batches fail; None if they do not fail."""
    driver = draft.observed.driver
    if driver is None or driver.failing is None:
        return None
    return Failure(reason=REASON, message=f"Batches keep failing ({driver.failing.reason}): {driver.failing.message}")


def given_up(draft: Draft) -> bool:
    """True if the job is FAILED because its batches fail, while its driver keeps retrying."""
    error = draft.status.error
    return draft.status.lifecycle_state is LifecycleState.FAILED and error is not None and error.reason == REASON


def watch(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    """Records failing batches, and fails or rolls back the job after ``spec.upgradeTimeout``.

    Args:
        draft: Draft of a job whose driver runs.
        spec: Spec that the driver was created from.
    """
    driver, state = draft.observed.driver, draft.status.lifecycle_state
    if driver is None or state is LifecycleState.ROLLED_BACK:
        return  # the error is that of the failed upgrade
    failure, error = failure_of(draft), draft.status.error
    if failure is None:
        if error is not None and error.reason == REASON and driver.works:
            draft.set(error=None)
        return
    draft.record_failure(failure, failure.message)
    if state is LifecycleState.STABLE and driver.fails:
        draft.enter(LifecycleState.RUNNING, REASON, failure.message)
    since = draft.status.error.since if draft.status.error is not None else draft.now
    if state is not LifecycleState.FAILED and draft.now >= since + timedelta(milliseconds=spec.upgrade_timeout):
        rollback.roll_back_or_fail(draft, failure)
    draft.requeue_after(_POLL_S)
