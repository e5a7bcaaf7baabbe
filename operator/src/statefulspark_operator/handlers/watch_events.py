"""Handles watch events: updates the object cache and enqueues the job or snapshot concerned. Runs in the operator's event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from statefulspark_operator.api.names import API_VERSION, JOB_KIND, JOB_PLURAL, LABEL_JOB, SNAPSHOT_KIND, SNAPSHOT_PLURAL
from statefulspark_operator.clients.kubernetes import Cluster, Tree
from statefulspark_operator.handlers.watch_health import NamespaceScope
from statefulspark_operator.reconcile.object_cache import Key, ObjectCache
from statefulspark_operator.reconcile.reconciler import WorkKey

_log = structlog.get_logger("statefulspark.operator.watch_events")
_CACHED: Final = {
    JOB_PLURAL: (API_VERSION, JOB_KIND, ""),
    SNAPSHOT_PLURAL: (API_VERSION, SNAPSHOT_KIND, ""),
    "pods": ("v1", "Pod", LABEL_JOB),
}
"""API version, kind and label selector of the cached kinds."""


class WatchEventHandler:
    """Handles the events that watches deliver.

    Args:
        cache: Object cache to update.
        add: Enqueues a job or a snapshot.
        canary: Called with each event for a job.
    """

    def __init__(self, cache: ObjectCache, add: Callable[[WorkKey], None], *, canary: Callable[[Tree], None]) -> None:
        self._cache = cache
        self._add = add
        self._canary = canary

    def handle(self, tree: Tree, gone: bool) -> None:
        """Handles an object that was added, modified or (``gone``) deleted."""
        match tree["kind"]:
            case "StatefulSparkJob":
                self._canary(tree)
                self._job(self._cache.on_job_event(tree, gone=gone))
            case "StateSnapshot":
                self._job(self._cache.on_snapshot_event(tree, gone=gone))
                if not gone:
                    self._add(("snapshot", tree["metadata"]["namespace"], tree["metadata"]["name"]))
            case "Pod":
                self._job(self._cache.on_pod_event(tree, gone=gone))
            case _:
                self._job(self._cache.on_child_event(tree, gone=gone))

    async def missed(self, cluster: Cluster, namespace: NamespaceScope, plural: str) -> None:
        """Recovers missed events after a watch had to list again: removes deleted objects from the cache, and has children applied again.

        Raises:
            StatefulSparkError: The objects could not be listed.
        """
        if plural not in _CACHED:
            self._cache.invalidate_children(namespace)
            self.enqueue_all(namespace)
            return
        api_version, kind, selector = _CACHED[plural]
        # Read before the list: an object that is cached afterwards is not in it, although it exists.
        known = self._cache.list_objects(kind, namespace)
        present = await cluster.uids(api_version, kind, namespace, selector)
        for tree in known:
            if tree["metadata"]["uid"] not in present:
                _log.info(
                    "object was deleted while it was not watched",
                    kind=kind,
                    namespace=tree["metadata"]["namespace"],
                    name=tree["metadata"]["name"],
                )
                self.handle(tree, True)

    def enqueue_all(self, namespace: NamespaceScope) -> None:
        """Enqueues every job and snapshot of a namespace, or of all namespaces."""
        for where, name in self._cache.jobs():
            if namespace in (None, where):
                self._add(("job", where, name))
        for where, name in self._cache.all_snapshots():
            if namespace in (None, where):
                self._add(("snapshot", where, name))

    def _job(self, key: Key | None) -> None:
        if key is not None:
            self._add(("job", *key))
