"""StateSnapshots of the checkpoints that a job keeps: which to make and which to drop. Pure; storage is the job's own business.

A checkpoint is worth an object when it stays for a while. So jobs that keep one checkpoint have none by default
(``checkpointing.retention.listed``), and a job gets at most one new object each time its figures of progress are written, every 30 s,
however fast its checkpoints come: an object costs three writes and as many watch events, which 500 jobs would multiply.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.jobs import LifecycleState, StatefulSparkJobStatus
from statefulspark_operator.api.snapshots import SnapshotState, SnapshotTrigger, SnapshotType
from statefulspark_operator.reconcile.actions import DeleteSnapshot, TakeSnapshot
from statefulspark_operator.reconcile.lifecycle import Draft
from statefulspark_operator.reconcile.observation import SnapshotSeen
from statefulspark_operator.reconcile.reports import PROGRESS_EVERY

_OWN: Final = frozenset({SnapshotTrigger.JOB, SnapshotTrigger.UPGRADE})
"""Objects that the operator made by itself; those of people stay as they are."""
_LOST: Final = frozenset({SnapshotState.FAILED, SnapshotState.ABANDONED})
REST: Final = frozenset({LifecycleState.SUSPENDED, LifecycleState.FINISHED, LifecycleState.FAILED})
"""No driver runs; storage is asked."""


def matter(spec: StatefulSparkJobSpec | None, status: StatefulSparkJobStatus, snapshots: tuple[SnapshotSeen, ...], now: datetime) -> bool:
    """Whether a look has to find out which checkpoints are kept: with the figures of progress, and when objects may tell of any."""
    if spec is None or status.transition is not None:
        return False
    listed = [snapshot for snapshot in snapshots if _listed(snapshot)]
    if status.lifecycle_state in REST:
        return bool(listed)
    due = status.progress_at is None or now - status.progress_at >= PROGRESS_EVERY
    return due and bool(listed or spec.checkpointing.retention.listed_count)


def list_retained(draft: Draft, spec: StatefulSparkJobSpec) -> None:
    """Have objects for the newest checkpoints that are kept, and none for those that are not any more."""
    kept = draft.seen.kept_paths
    if not kept:
        return
    folder = next(iter(kept)).rpartition("/")[0]
    # What an earlier folder of the job holds, before a stateless upgrade or of a deleted job of this name, is nobody's to prune.
    known = [snapshot for snapshot in draft.seen.snapshots if _listed(snapshot) and (snapshot.path or "").rpartition("/")[0] == folder]
    gone = [snapshot for snapshot in known if snapshot.path not in kept]
    # Made between the checkpoint and its removal, and the operator ended before it could say what it is.
    gone += [each for each in draft.seen.snapshots if each.trigger is SnapshotTrigger.JOB and each.state in _LOST and not each.deleting]
    for snapshot in gone:
        draft.do(DeleteSnapshot(name=snapshot.name))
    places = spec.checkpointing.retention.listed_count - _list_newest(draft, spec)
    own = [snapshot for snapshot in known if snapshot.path in kept and snapshot.trigger is SnapshotTrigger.JOB]
    for snapshot in sorted(own, key=lambda each: each.checkpoint_id or 0, reverse=True)[max(0, places) :]:
        draft.do(DeleteSnapshot(name=snapshot.name))


def _list_newest(draft: Draft, spec: StatefulSparkJobSpec) -> int:
    """Have an object for the newest checkpoint; returns how many are made, 0 or 1."""
    driver = draft.seen.driver
    if driver is None or not driver.retained or not spec.checkpointing.retention.listed_count:
        return 0
    newest = max(driver.retained, key=lambda info: info.id)
    # The name follows from the checkpoint, so making it twice makes one.
    name = f"{draft.seen.name}-checkpoint-{newest.completed_at:%Y%m%d%H%M%S}"
    if any(snapshot.path == newest.path or snapshot.name == name for snapshot in draft.seen.snapshots):
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


def _listed(snapshot: SnapshotSeen) -> bool:
    """Whether it is the operator's own object of a checkpoint."""
    complete = snapshot.state is SnapshotState.COMPLETED and not snapshot.deleting
    return complete and snapshot.type is SnapshotType.CHECKPOINT and snapshot.trigger in _OWN
