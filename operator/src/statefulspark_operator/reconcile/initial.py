"""The state that a job starts from when it runs for the first time: a path, or a StateSnapshot of any job (a fork). Pure."""

from __future__ import annotations

from typing import Any, Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.snapshots import SnapshotState
from statefulspark_operator.reconcile.lifecycle import Draft

SNAPSHOT_REASONS: Final = frozenset({"SnapshotMissing", "SnapshotUnusable"})
"""Reasons of errors that a person must mend."""
_LOST: Final = frozenset({SnapshotState.FAILED, SnapshotState.ABANDONED})
_POLL_S: Final = 5.0


def choose_initial_state(draft: Draft, spec: StatefulSparkJobSpec) -> bool:
    """Put what the first start restores from into the status; False while the snapshot that the spec names is not there to be taken."""
    if spec.initial_snapshot is None:
        draft.set(initial_state=spec.initial_savepoint_path)
        return True
    name, seen = spec.initial_snapshot.name, draft.seen.initial
    problem = None
    if seen is None or seen.deleting:
        problem = Failure(
            reason="SnapshotMissing", message=f"spec.initialSnapshot: there is no StateSnapshot {name}. Create it, or name another"
        )
    elif seen.state in _LOST:
        message = f"spec.initialSnapshot: StateSnapshot {name} is {seen.state}. Name another"
        problem = Failure(reason="SnapshotUnusable", message=message)
    elif seen.path is None:
        problem = Failure(reason="SnapshotPending", message=f"spec.initialSnapshot: StateSnapshot {name} is not complete yet")
    elif seen.max_parallelism and spec.max_parallelism_given and seen.max_parallelism != spec.max_parallelism:
        message = (
            f"spec.maxParallelism: StateSnapshot {name} has {seen.max_parallelism} key groups. Set maxParallelism to that, or leave it out"
        )
        problem = Failure(reason="SnapshotUnusable", message=message)
    if problem is not None:
        before = draft.status.error
        draft.failed(problem)
        if draft.status.error != before and problem.reason != "SnapshotPending":
            draft.tell(problem.reason, problem.message, warning=True)
        draft.look_again(_POLL_S)
        return False
    draft.set(initial_state=seen.path if seen is not None else None, error=None)
    return True


def children_spec(draft: Draft, spec: StatefulSparkJobSpec) -> dict[str, Any]:
    """The spec that a job's children are made from: with the path that a snapshot stands for, and without either in a folder that is to be empty."""
    manifest = spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    manifest.pop("initialSnapshot", None)
    manifest.pop("initialSavepointPath", None)
    if draft.status.initial_state is not None and draft.status.job_id in {None, draft.seen.uid}:
        manifest["initialSavepointPath"] = draft.status.initial_state
    return manifest
