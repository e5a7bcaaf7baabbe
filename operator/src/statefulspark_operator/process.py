"""The operator process: wires all parts together and runs them until SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from statefulspark.errors import InvalidInputError, StatefulSparkError
from statefulspark_operator.builders.keys import OperatorKey
from statefulspark_operator.clients.drivers import Drivers
from statefulspark_operator.clients.events import EventRecorder
from statefulspark_operator.clients.kubernetes import Cluster, Tree
from statefulspark_operator.clients.namespaces import Namespaces
from statefulspark_operator.clients.secrets import operator_key
from statefulspark_operator.handlers.canary import Canary
from statefulspark_operator.handlers.leadership import Leadership, LeaseTimes
from statefulspark_operator.handlers.metrics import OperatorMetrics
from statefulspark_operator.handlers.serving import health_app, metrics_app, serve, webhook_app
from statefulspark_operator.handlers.watch_events import WatchEventHandler
from statefulspark_operator.handlers.watch_health import NamespaceScope, WatchHealth
from statefulspark_operator.handlers.watch_thread import WatchThread
from statefulspark_operator.reconcile.context import ReconcileContext
from statefulspark_operator.reconcile.credentials import JobSecrets
from statefulspark_operator.reconcile.job.job_reconciler import ResyncIntervals
from statefulspark_operator.reconcile.object_cache import ObjectCache
from statefulspark_operator.reconcile.reconciler import Reconciler, WorkKey
from statefulspark_operator.reconcile.tenancy import Tenancy
from statefulspark_operator.reconcile.work_queue import WorkQueue
from statefulspark_operator.settings import OperatorSettings

_log = structlog.get_logger("statefulspark.operator")
_END_S: Final = 25.0
"""Kubernetes kills a pod 30 s after SIGTERM; whatever still runs at this point is not waited for."""


class Operator:
    """One replica of the operator."""

    def __init__(self, settings: OperatorSettings, cluster: Cluster, owners: list[Tree]) -> None:
        self._settings = settings
        self._cluster = cluster
        self._cache = ObjectCache()
        self._missed: set[asyncio.Task[None]] = set()
        self._tenancy = Tenancy(
            own_namespace=settings.namespace,
            locations=settings.storage_locations,
            snapshot_locations=settings.snapshot_locations,
            endpoints=settings.storage_endpoints,
            api_server=os.environ.get("KUBERNETES_SERVICE_HOST"),
        )
        self._leadership = Leadership(
            cluster,
            namespace=settings.namespace,
            name=settings.lease_name,
            identity=settings.pod_name,
            times=LeaseTimes(
                duration_s=max(1, settings.lease_duration // 1000),
                renew_deadline_s=settings.lease_renew_deadline / 1000,
                retry_s=settings.lease_retry_period / 1000,
            ),
            changed=self._lead_changed,
            owners=owners,
        )
        self._may_act: Callable[[], bool] = self._leadership.holds if settings.leader_election else lambda: True
        self._canary = Canary(
            cluster,
            namespace=settings.namespace,
            identity=settings.pod_name,
            timeout_s=settings.canary_timeout / 1000,
            owners=owners,
        )

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        stop = _stop_signal()
        drivers = Drivers(poll_interval_s=self._settings.reconcile_interval / 1000)
        context = ReconcileContext(
            cluster=self._cluster,
            drivers=drivers,
            secrets=JobSecrets(
                self._cluster, OperatorKey(await operator_key(self._cluster, self._settings.namespace, self._settings.key_secret))
            ),
            cache=self._cache,
            events=EventRecorder(self._cluster),
            namespace_terminating=Namespaces(self._cluster).terminating,
            disruption_budgets=await self._cluster.disruption_budgets(next(iter(self._settings.watch_namespaces), "default")),
            job_api_from=self._settings.job_api_from,
            tenancy=self._tenancy,
            default_image=self._settings.job_image,
            default_state_backend=self._settings.default_state_backend,
            creates_service_accounts=self._settings.manage_job_rbac,
        )
        self._watches = WatchHealth(changed=self._namespace_changed, relisted=self._relisted)
        reconciler = Reconciler(
            context,
            may_act=self._may_act,
            lost=self._watches.lost,
            resync=ResyncIntervals(running_s=self._settings.reconcile_interval / 1000),
        )
        metrics = OperatorMetrics(
            self._cache, queued=lambda: len(self._queue), leads=self._may_act, lost=lambda: len(self._watches.notes())
        )
        self._cluster.observe(metrics.api_request)
        self._queue: WorkQueue[WorkKey] = WorkQueue(
            reconciler.reconcile, workers=self._settings.reconcile_parallelism, observe=metrics.reconciled, lane=_namespace
        )
        self._watch_events = WatchEventHandler(self._cache, self._queue.add, canary=self._canary.on_event)
        self._watch_thread = WatchThread(self._settings.watch_namespaces, on_event=self._watch_events.handle, watch_health=self._watches)
        parts: list[Coroutine[Any, Any, None]] = [self._queue.run(), self._watch_thread.run(), *self._servers(metrics)]
        if self._settings.leader_election:
            parts.append(self._leadership.run())
        if self._settings.canary:
            parts.append(self._canary.run())
        else:
            await self._canary.remove()
        failures = await _run_until(stop, parts)
        await drivers.close()
        await self._cluster.close()
        for failure in failures:
            raise failure

    def _servers(self, metrics: OperatorMetrics) -> list[Coroutine[Any, Any, None]]:
        settings = self._settings
        servers = [
            serve(health_app(self._alive, self._is_ready, notes=self._watches.notes), settings.health_port, name="health"),
            serve(metrics_app(metrics.registry), settings.metrics_port, name="metrics"),
        ]
        if settings.webhook_enabled:
            servers.append(
                serve(
                    webhook_app(self._tenancy, self._cache.snapshot, settings.default_state_backend),
                    settings.webhook_port,
                    name="webhook",
                    certificates=settings.webhook_certificates,
                )
            )
        return servers

    def _lead_changed(self, leads: bool) -> None:
        self._cache.invalidate_writes()
        if leads:
            self._watch_events.enqueue_all(None)

    def _namespace_changed(self, namespace: NamespaceScope, watched: bool) -> None:
        if watched:
            self._watch_events.enqueue_all(namespace)

    def _relisted(self, namespace: NamespaceScope, plural: str) -> None:
        task = asyncio.create_task(self._recover_missed(namespace, plural))
        self._missed.add(task)
        task.add_done_callback(self._missed.discard)

    async def _recover_missed(self, namespace: NamespaceScope, plural: str) -> None:
        try:
            await self._watch_events.missed(self._cluster, namespace, plural)
        except StatefulSparkError as error:
            _log.warning("failed to relist after missed events", namespace=namespace, plural=plural, error=str(error)[:300])

    def _alive(self) -> str | None:
        return (self._canary.problem() if self._settings.canary else None) or self._watch_thread.problem() or self._queue.problem()

    def _is_ready(self) -> str | None:
        return None if self._watch_thread.is_ready() else "the watches have not started yet"


async def _run_until(stop: asyncio.Event, parts: list[Coroutine[Any, Any, None]]) -> list[BaseException]:
    """Runs the parts of the operator until ``stop`` is set or one of them ends, then cancels the others. Returns the errors of those that failed."""
    tasks = [asyncio.create_task(part) for part in parts]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
    failures = [error for task in tasks if task.done() and not task.cancelled() and (error := task.exception()) is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return failures


async def _owners(settings: OperatorSettings, cluster: Cluster) -> list[Tree]:
    """References to the operator's Deployment, for what the operator creates for itself; Kubernetes deletes that with it."""
    if settings.deployment is None:
        return []
    try:
        found = await cluster.get("apps/v1", "Deployment", settings.namespace, settings.deployment)
    except InvalidInputError as error:
        _log.warning("cannot read the operator's Deployment; the Lease and the canary will not be deleted with it", error=str(error)[:300])
        return []
    if found is None:
        return []
    return [{"apiVersion": "apps/v1", "kind": "Deployment", "name": settings.deployment, "uid": found["metadata"]["uid"]}]


def _stop_signal() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set; from then on the process has a limited time to end."""
    stop = asyncio.Event()

    def begin() -> None:
        stop.set()
        # A thread that hangs in a system call cannot be cancelled, and the interpreter would wait for it.
        last = threading.Timer(_END_S, os._exit, (0,))
        last.daemon = True
        last.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, begin)
    return stop


def _namespace(key: WorkKey) -> str:
    return key[1]


async def run_operator(settings: OperatorSettings) -> None:
    """Run one replica.

    Raises:
        StatefulSparkError: The API server cannot be reached, or refuses what the operator needs.
    """
    try:
        cluster = await Cluster.connect()
        await Operator(settings, cluster, await _owners(settings, cluster)).run()
    except StatefulSparkError:
        _log.exception("operator terminates after an error")
        raise
