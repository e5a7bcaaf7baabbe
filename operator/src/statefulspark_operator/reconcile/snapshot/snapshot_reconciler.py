"""Reconciles one StateSnapshot: observe, plan, apply."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from statefulspark_operator.api.names import (
    API_VERSION,
    FINALIZER,
    LABEL_SNAPSHOT_STATE,
    LABEL_TRIGGER_TYPE,
    SNAPSHOT_KIND,
)
from statefulspark_operator.api.snapshots import StateSnapshotStatus
from statefulspark_operator.clients.kubernetes import Tree
from statefulspark_operator.reconcile.context import ReconcileContext
from statefulspark_operator.reconcile.snapshot.apply import apply
from statefulspark_operator.reconcile.snapshot.observe import observe
from statefulspark_operator.reconcile.snapshot.plan import (
    FINAL,
    plan_snapshot,
)
from statefulspark_operator.reconcile.snapshot.storage_pods import StoragePods


class SnapshotReconciler:
    """Reconciles snapshots.

    Args:
        context: Clients, cache and settings.
        may_act: True if this replica leads; asked before every write.
        now: The current time, with its zone.
    """

    def __init__(self, context: ReconcileContext, *, may_act: Callable[[], bool], now: Callable[[], datetime]) -> None:
        self._context = context
        self._cache = context.cache
        self._may_act = may_act
        self._now = now
        self._storage_pods = StoragePods(context)

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Reconciles one snapshot. Returns the seconds until it must be reconciled again, or None for never."""
        known = self._cache.snapshot(namespace, name)
        if known is not None and _settled(known) and not self._storage_pods.exist(known):
            return None
        tree = await self._context.cluster.get(API_VERSION, SNAPSHOT_KIND, namespace, name)
        if tree is None:
            return None
        if FINALIZER not in (tree["metadata"].get("finalizers") or ()) and await self._context.namespace_terminating(namespace):
            return None  # nothing is started in a namespace that is being deleted
        observed = await observe(self._context, self._storage_pods, tree, self._now())
        decided = plan_snapshot(observed)
        if not self._may_act():
            return None
        await apply(self._context, self._storage_pods, tree, observed, decided)
        return decided.requeue_after_s


def _settled(tree: Tree) -> bool:
    """True if the cached snapshot needs no further action. A later change arrives as another event."""
    metadata, status = tree["metadata"], StateSnapshotStatus.read(tree.get("status"))
    labels = metadata.get("labels") or {}
    held = FINALIZER in (metadata.get("finalizers") or ()) or "checkpoint" in (tree.get("spec") or {})
    told = labels.get(LABEL_SNAPSHOT_STATE) == status.state.value and LABEL_TRIGGER_TYPE in labels
    acted = status.state in FINAL and status.observed_generation == metadata.get("generation")
    return acted and held and told and metadata.get("deletionTimestamp") is None
