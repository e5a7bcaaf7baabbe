"""StateSnapshot objects for the checkpoints that a job retains: which to create and which to delete. Pure; storage is not accessed.

An object is only useful for a checkpoint that is retained for a while. So jobs that retain one checkpoint have none by default
(``checkpointing.retention.listed``), and a job gets at most one new object each time its progress is written (every 30 s), however often it
takes checkpoints: an object costs three writes and as many watch events, multiplied by the number of jobs.
"""

from __future__ import annotations

from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType
from statefulspark_operator.reconcile.job.observe.kept_checkpoints import is_listed
from statefulspark_operator.reconcile.job.plan.actions import DeleteSnapshot, TakeSnapshot
from statefulspark_operator.reconcile.job.plan.draft import Draft

_LOST: Final = frozenset({SnapshotState.FAILED, SnapshotState.ABANDONED})


def list_retained(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    """Creates objects for the latest retained checkpoints, and deletes those of checkpoints that no longer exist."""
    kept = draft.observed.kept_paths
    if not kept:
        return
    folder = next(iter(kept)).rpartition("/")[0]
    # Never prune checkpoints in another directory, from before a stateless upgrade or from a deleted job of this name.
    known = [
        snapshot for snapshot in draft.observed.snapshots if is_listed(snapshot) and (snapshot.path or "").rpartition("/")[0] == folder
    ]
    gone = [snapshot for snapshot in known if snapshot.path not in kept]
    # Made between the checkpoint and its removal, and the operator ended before it could say what it is.
    gone += [each for each in draft.observed.snapshots if each.trigger is SnapshotTrigger.JOB and each.state in _LOST and not each.deleting]
    for snapshot in gone:
        draft.do(DeleteSnapshot(name=snapshot.name))
    places = spec.checkpointing.retention.listed_count - _list_newest(draft, spec)
    own = [snapshot for snapshot in known if snapshot.path in kept and snapshot.trigger is SnapshotTrigger.JOB]
    for snapshot in sorted(own, key=lambda each: each.checkpoint_id or 0, reverse=True)[max(0, places) :]:
        draft.do(DeleteSnapshot(name=snapshot.name))


def _list_newest(draft: Draft, spec: StatefulSparkJobSpec) -> int:
    """Creates an object for the latest checkpoint. Returns the number of created objects, 0 or 1."""
    driver = draft.observed.driver
    if driver is None or not driver.retained or not spec.checkpointing.retention.listed_count:
        return 0
    newest = max(driver.retained, key=lambda info: info.id)
    # The name follows from the checkpoint, so making it twice makes one.
    name = f"{draft.observed.name}-checkpoint-{newest.completed_at:%Y%m%d%H%M%S}"
    if any(snapshot.path == newest.path or snapshot.name == name for snapshot in draft.observed.snapshots):
        return 0
    draft.do(
        TakeSnapshot(
            name=name,
            trigger=SnapshotTrigger.JOB,
            type=SnapshotType.CHECKPOINT,
            existing_path=newest.path,
            known=newest,
            max_parallelism=driver.max_parallelism,
        )
    )
    return 1
