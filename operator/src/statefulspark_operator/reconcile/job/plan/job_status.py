"""Fields of the status that are copied from the observation: the driver's progress, key groups, snapshots. Pure."""

from __future__ import annotations

from typing import Final

from statefulspark_operator.api.jobs import PROGRESS_EVERY, SLOTS_MAX, JobStateName, SlotKeyGroups, SnapshotInfo
from statefulspark_operator.api.names import COMPONENT_EXECUTOR, LABEL_COMPONENT, LABEL_JOB
from statefulspark_operator.reconcile.job.plan.draft import Draft
from statefulspark_operator.reconcile.job.plan.memory_status import memory_plan

_NEXT_S: Final = 1.0
_PROGRESS: Final = ("batch", "lag", "last_checkpoint")


def report(draft: Draft) -> None:
    """Copies the observation into the status."""
    observed, driver = draft.observed, draft.observed.driver
    ending = observed.pod.ending if observed.pod is not None else None
    changed = draft.status.observed_generation != observed.generation or draft.status.memory_plan is None
    draft.set(
        observed_generation=observed.generation,
        job_id=draft.status.job_id or observed.uid,
        driver_pod=observed.pod.name if observed.pod is not None else None,
        executors=observed.executors,
        label_selector=f"{LABEL_JOB}={observed.name},{LABEL_COMPONENT}={COMPONENT_EXECUTOR}",
        last_checkpoint=_newer(draft.status.last_checkpoint, ending.checkpoint if ending is not None else None),
        last_savepoint=_newer(draft.status.last_savepoint, ending.savepoint if ending is not None else None),
    )
    if observed.spec is not None and changed:
        draft.set(memory_plan=memory_plan(observed.spec, observed.spec.parallelism))
    if driver is None:
        if observed.pod is None:
            draft.set(parallelism=0, key_groups=(), job_state=None, lag=None)
        return
    draft.set(
        job_state=JobStateName(driver.state),
        attempt=driver.attempt,
        batch=driver.batch,
        lag=driver.lag,
        parallelism=driver.parallelism,
        max_parallelism=driver.max_parallelism,
        key_groups=tuple(
            SlotKeyGroups(slot=slot.slot, first=slot.first, last=slot.last, executor=slot.executor) for slot in driver.slots[:SLOTS_MAX]
        ),
        last_checkpoint=_newer(driver.last_checkpoint, draft.status.last_checkpoint),
        last_savepoint=_newer(driver.last_savepoint, draft.status.last_savepoint),
        restored_from=driver.restored_from,
    )


def settle_progress(draft: Draft) -> None:
    """Restores the last written progress, unless something else has changed or it is outdated.

    A status that changed with each batch would cost a write per batch, and a watch event for every watcher.
    """
    before = draft.observed.status
    old = {name: getattr(before, name) for name in _PROGRESS}
    if draft.status == before.model_copy(update={name: getattr(draft.status, name) for name in _PROGRESS}):
        fresh = before.progress_at is not None and draft.now - before.progress_at < PROGRESS_EVERY
        if fresh or draft.status == before:
            draft.set(**old)
            return
    elif draft.requeue_after_s is None:
        draft.requeue_after(_NEXT_S)  # what is new in the status may be the ground for more
    if draft.observed.driver is not None:
        draft.set(progress_at=draft.now)


def _newer(first: SnapshotInfo | None, second: SnapshotInfo | None) -> SnapshotInfo | None:
    """The one that was completed later."""
    if first is None or second is None:
        return first or second
    return max(first, second, key=lambda info: info.completed_at)
