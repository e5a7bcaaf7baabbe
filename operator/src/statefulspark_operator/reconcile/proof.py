"""An upgrade is over when a checkpoint of the new spec is complete; one that runs and never gets there is rolled back. Pure.

Under a restart strategy of its own a job's code may fail for ever while its driver says RUNNING. What proves the opposite is a complete
checkpoint, of a later batch than the spec began with or of a job that nothing has disturbed: between two attempts at the same batch a driver that
is asked can take one as well. It must come within ``spec.upgradeTimeout`` of the first batches; when half of that has passed the driver is
asked for one, since ``checkpointing.interval`` may be longer, and a job without new rows takes none by itself.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.jobs import LifecycleState, SnapshotInfo
from statefulspark_operator.reconcile import transitions
from statefulspark_operator.reconcile.actions import AskDriver
from statefulspark_operator.reconcile.changes import Cost, changes_between
from statefulspark_operator.reconcile.lifecycle import Draft
from statefulspark_operator.reconcile.specs import checked_spec

_ASK_AGAIN_S: Final = 60
"""A checkpoint that failed is asked for again after so long: a request with the same key finds the one before."""
_PROVED: Final = frozenset({LifecycleState.STABLE, LifecycleState.ROLLED_BACK})


def demand(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    """Give what runs a time to prove itself, ask for the checkpoint that does, and go back when the time is over.

    Args:
        draft: Of a job with nothing under way, whose driver was started.
        spec: What that was built from.
    """
    if draft.status.transition is not None or draft.status.lifecycle_state in _PROVED or not _goes_back(draft, spec):
        return
    within = timedelta(milliseconds=spec.upgrade_timeout)
    by = draft.status.reconciliation.stable_by if draft.status.reconciliation is not None else None
    if by is None:
        by = draft.now + within
        draft.reconciled(stable_by=by)
    if draft.now >= by:
        transitions.start_failed(draft, _failure(draft))
        return
    driver, left = draft.seen.driver, by - draft.now
    if driver is not None and driver.state == "RUNNING" and left <= within / 2:
        generation = draft.status.reconciliation.last_reconciled_generation if draft.status.reconciliation is not None else None
        draft.do(AskDriver(kind="checkpoint", key=f"prove-{generation}-{int(left.total_seconds()) // _ASK_AGAIN_S}"))
    draft.look_again(max(1.0, left.total_seconds()))


def proves(draft: Draft, checkpoint: SnapshotInfo) -> bool:
    """Whether a checkpoint that was completed since the job runs shows that it works."""
    driver, pod, reconciliation = draft.seen.driver, draft.seen.pod, draft.status.reconciliation
    starts_again = draft.status.restarts + (driver.restarts if driver is not None else 0) + (pod.restarts if pod is not None else 0)
    began = reconciliation.began_batch if reconciliation is not None else None
    return not starts_again or began is None or checkpoint.batch is None or checkpoint.batch > began


def _goes_back(draft: Draft, spec: StatefulSparkJobSpec) -> bool:
    """Whether there is another spec to go back to. A mere rescale is none: what stops its checkpoints is not the number of slots."""
    reconciliation, wanted = draft.status.reconciliation, draft.seen.spec
    stable = checked_spec(reconciliation.last_stable_spec) if reconciliation is not None else None
    if stable is None or (wanted is not None and not wanted.rollback):
        return False
    return changes_between(stable, spec).cost is Cost.UPGRADE


def _failure(draft: Draft) -> Failure:
    driver = draft.seen.driver
    failed = f" ({driver.failed_checkpoints} have failed)" if driver is not None and driver.failed_checkpoints else ""
    why = f": {driver.error.message}" if driver is not None and driver.error is not None else "; the driver's log says why"
    return Failure(
        reason="NotStable", message=f"Batches ran, but no checkpoint{failed} was complete within spec.upgradeTimeout of the first{why}"
    )
