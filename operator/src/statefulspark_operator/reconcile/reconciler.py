"""Handler of the work queue: hands each key to the reconciler of its kind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from statefulspark_operator.reconcile.context import ReconcileContext
from statefulspark_operator.reconcile.job.job_reconciler import JobReconciler, ResyncIntervals, is_deleting
from statefulspark_operator.reconcile.snapshot.snapshot_reconciler import SnapshotReconciler

WorkKey = tuple[Literal["job", "snapshot"], str, str]
"""Kind, namespace and name."""


def _now() -> datetime:
    return datetime.now(UTC)


class Reconciler:
    """Reconciles jobs and snapshots.

    Args:
        context: Clients, cache and settings.
        may_act: True if this replica leads; asked before every write.
        lost: True for a namespace that the operator cannot watch at present, so that the cache is out of date.
        resync: Resync intervals.
        now: The current time, with its zone.
    """

    def __init__(
        self,
        context: ReconcileContext,
        *,
        may_act: Callable[[], bool],
        lost: Callable[[str], bool] = lambda _: False,
        resync: ResyncIntervals,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._context = context
        self._cache = context.cache
        self._may_act = may_act
        self._lost = lost
        self._jobs = JobReconciler(context, may_act=may_act, resync=resync, now=now)
        self._snapshots = SnapshotReconciler(context, may_act=may_act, now=now)

    async def reconcile(self, key: WorkKey) -> float | None:
        """Reconciles the object of ``key``. Returns the seconds until it must be reconciled again, or None for never."""
        if not self._may_act():
            return None  # the leader enqueues every object when it starts to lead
        kind, namespace, name = key
        tree = self._cache.job(namespace, name) if kind == "job" else self._cache.snapshot(namespace, name)
        if self._lost(namespace) and not is_deleting(tree):
            return None  # all of its objects are enqueued when it is watched again
        return await (self._jobs.reconcile(namespace, name) if kind == "job" else self._snapshots.reconcile(namespace, name))
