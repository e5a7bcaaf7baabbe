"""An upgrade is stable once a checkpoint of the new spec has completed; an upgrade that never gets there is rolled back. Pure.

With a restart strategy, a job's code may fail indefinitely while its driver reports RUNNING. Stability needs a completed checkpoint, either of a
later batch than the spec started with, or of a job without any restart: a driver can also take a requested checkpoint between two attempts at
the same batch. The checkpoint must complete within ``spec.upgradeTimeout`` of the first batches. After half of that time the operator requests
one from the driver, since ``checkpointing.interval`` may be longer, and a job without new rows takes none by itself.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.jobs import LifecycleState, ReconciliationState, SnapshotInfo
from statefulspark_operator.reconcile.job.plan import rollback
from statefulspark_operator.reconcile.job.plan.actions import AskDriver
from statefulspark_operator.reconcile.job.plan.draft import Draft

_ASK_AGAIN_S: Final = 60
"""A failed checkpoint is requested again after this time; a request with the same key would return the failed one."""
NOT_READY: Final = "The driver did not start processing batches within spec.upgradeTimeout. Check the driver's log"
_PROVED: Final = frozenset({LifecycleState.STABLE, LifecycleState.ROLLED_BACK, LifecycleState.FAILED})


def demand(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    """Sets the deadline for the first checkpoint, requests the checkpoint, and rolls back after the deadline.

    Args:
        draft: Draft of a job without a transition, whose driver was started.
        spec: Spec that the driver was created from.
    """
    if draft.status.transition is not None or draft.status.lifecycle_state in _PROVED or not rollback.has_other_spec(draft, spec):
        return
    within = timedelta(milliseconds=spec.upgrade_timeout)
    by = draft.status.reconciliation.stable_by if draft.status.reconciliation is not None else None
    if by is None:
        by = draft.now + within
        draft.reconciled(stable_by=by)
    if draft.now >= by:
        rollback.roll_back_or_fail(draft, _failure(draft))
        return
    driver, left = draft.observed.driver, by - draft.now
    if driver is not None and driver.state == "RUNNING" and left <= within / 2:
        generation = draft.status.reconciliation.last_reconciled_generation if draft.status.reconciliation is not None else None
        draft.do(AskDriver(kind="checkpoint", key=f"prove-{generation}-{int(left.total_seconds()) // _ASK_AGAIN_S}"))
    draft.requeue_after(max(1.0, left.total_seconds()))


def proves(draft: Draft, checkpoint: SnapshotInfo) -> bool:
    """True if a checkpoint completed since the start of the spec shows that the job works."""
    driver, pod, reconciliation = draft.observed.driver, draft.observed.pod, draft.status.reconciliation
    if driver is not None and (driver.failing is not None or not driver.works):
        return False
    starts_again = draft.status.restarts + (driver.restarts if driver is not None else 0) + (pod.restarts if pod is not None else 0)
    began = reconciliation.began_batch if reconciliation is not None else None
    return not starts_again or began is None or checkpoint.batch is None or checkpoint.batch > began


def _failure(draft: Draft) -> Failure:
    driver, reconciliation = draft.observed.driver, draft.status.reconciliation
    if reconciliation is not None and reconciliation.state is ReconciliationState.UPGRADING:
        return Failure(reason="NotReady", message=NOT_READY)
    failed = f" ({driver.failed_checkpoints} failed)" if driver is not None and driver.failed_checkpoints else ""
    error = (driver.failing or driver.error) if driver is not None else None
    why = f": {error.message}" if error is not None else ". Check the driver's log"
    return Failure(
        reason="NotStable", message=f"Batches ran, but no checkpoint completed within spec.upgradeTimeout of the first batch{failed}{why}"
    )
