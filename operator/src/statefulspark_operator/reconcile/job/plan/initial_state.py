"""The state that the first start of a job restores from: a path, or a StateSnapshot of any job (a fork). Pure."""

from __future__ import annotations

from typing import Final

from statefulspark.config.claim_mode import ClaimMode
from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.snapshots import SnapshotState
from statefulspark_operator.reconcile.job.plan.draft import Draft

SNAPSHOT_REASONS: Final = frozenset({"SnapshotMissing", "SnapshotUnusable"})
"""Reasons of errors that need intervention."""
_LOST: Final = frozenset({SnapshotState.FAILED, SnapshotState.ABANDONED})
_POLL_S: Final = 5.0


def choose_initial_state(draft: Draft, spec: StatefulSparkJobSpec) -> bool:
    """Writes the initial state into the status. Returns False while the snapshot that the spec names is not available."""
    if spec.initial_snapshot is None:
        draft.set(initial_state=spec.initial_savepoint_path)
        return True
    name, observed = spec.initial_snapshot.name, draft.observed.initial
    problem = None
    if observed is None or observed.deleting:
        problem = Failure(
            reason="SnapshotMissing", message=f"spec.initialSnapshot: StateSnapshot {name} not found. Create it, or choose another"
        )
    elif observed.state in _LOST:
        message = f"spec.initialSnapshot: StateSnapshot {name} is {observed.state}. Choose another"
        problem = Failure(reason="SnapshotUnusable", message=message)
    elif observed.path is None:
        problem = Failure(reason="SnapshotPending", message=f"spec.initialSnapshot: StateSnapshot {name} has not completed yet")
    elif draft.observed.initial_problem is not None:
        problem = Failure(reason="SnapshotUnusable", message=draft.observed.initial_problem)
    elif observed.max_parallelism and spec.max_parallelism_given and observed.max_parallelism != spec.max_parallelism:
        message = f"spec.maxParallelism: StateSnapshot {name} has {observed.max_parallelism} key groups. Set maxParallelism to that number, or remove the field"
        problem = Failure(reason="SnapshotUnusable", message=message)
    if problem is not None:
        before = draft.status.error
        draft.failed(problem)
        if draft.status.error != before and problem.reason != "SnapshotPending":
            draft.record_event(problem.reason, problem.message, warning=True)
        draft.requeue_after(_POLL_S)
        return False
    draft.set(initial_state=observed.path if observed is not None else None, error=None)
    return True


def children_spec(draft: Draft, spec: StatefulSparkJobSpec) -> StatefulSparkJobSpec:
    """The spec for a job's children: initialSnapshot is replaced by its path, and both fields are unset if the job must start without state."""
    in_first_folder = draft.status.job_id in {None, draft.observed.uid}
    path = draft.status.initial_state if in_first_folder else None
    # A StateSnapshot owns its files; and without a path there is nothing to claim.
    claim_mode = spec.claim_mode if path is not None and spec.initial_snapshot is None else ClaimMode.NO_CLAIM
    return spec.model_copy(update={"initial_snapshot": None, "initial_savepoint_path": path, "claim_mode": claim_mode})
