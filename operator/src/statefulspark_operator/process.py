"""The operator process: everything put together and run until it is told to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import kopf
import structlog

from statefulspark.errors import StatefulSparkError
from statefulspark_operator.clients.drivers import Drivers
from statefulspark_operator.clients.events import Events
from statefulspark_operator.clients.kubernetes import Cluster
from statefulspark_operator.clients.secrets import SecretValues
from statefulspark_operator.clients.snapshots import SnapshotStorage
from statefulspark_operator.handlers.canary import Canary
from statefulspark_operator.handlers.leadership import Leadership, LeaseTimes
from statefulspark_operator.handlers.metrics import OperatorMetrics
from statefulspark_operator.handlers.serving import health_app, metrics_app, serve, webhook_app
from statefulspark_operator.handlers.watches import watch_registry, watch_settings
from statefulspark_operator.reconcile.apply import Hands
from statefulspark_operator.reconcile.looks import Looks, Pace, WorkKey
from statefulspark_operator.reconcile.mirror import Mirror
from statefulspark_operator.reconcile.observe import Eyes
from statefulspark_operator.reconcile.queue import WorkQueue
from statefulspark_operator.settings import OperatorSettings

_log = structlog.get_logger("statefulspark.operator")


class Operator:
    """One replica of the operator."""

    def __init__(self, settings: OperatorSettings, cluster: Cluster) -> None:
        self._settings = settings
        self._cluster = cluster
        self._mirror = Mirror()
        self._ready = asyncio.Event()
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
        )
        self._may_act: Callable[[], bool] = self._leadership.holds if settings.leader_election else lambda: True
        self._canary = Canary(cluster, namespace=settings.namespace, identity=settings.pod_name, timeout_s=settings.canary_timeout / 1000)

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        drivers = Drivers()
        eyes = Eyes(
            cluster=self._cluster,
            drivers=drivers,
            storage=SnapshotStorage(),
            secrets=SecretValues(self._cluster),
            mirror=self._mirror,
            default_image=self._settings.job_image,
            makes_accounts=self._settings.manage_job_rbac,
        )
        hands = Hands(
            eyes=eyes,
            events=Events(self._cluster),
            disruption_budgets=await self._cluster.disruption_budgets(next(iter(self._settings.watch_namespaces), "default")),
            made=self._mirror.made,
            applied=self._mirror.applied,
            wrote=self._mirror.wrote,
        )
        looks = Looks(hands, self._mirror, may_act=self._may_act, pace=Pace(settled_s=self._settings.reconcile_interval / 1000))
        metrics = OperatorMetrics(self._mirror, queued=lambda: len(self._queue), leads=self._may_act)
        self._cluster.observe(metrics.asked)
        self._queue: WorkQueue[WorkKey] = WorkQueue(looks.look, workers=self._settings.reconcile_parallelism, observe=metrics.looked)
        parts: list[Coroutine[Any, Any, None]] = [self._queue.run(), self._watch(stop), *self._servers(metrics)]
        if self._settings.leader_election:
            parts.append(self._leadership.run())
        if self._settings.canary:
            parts.append(self._canary.run())
        tasks = [asyncio.create_task(part) for part in parts]
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in tasks if task.done() and not task.cancelled() and task.exception() is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await drivers.close()
        await self._cluster.close()
        for task in failed:
            raise task.exception() or RuntimeError("a part of the operator ended")

    def _servers(self, metrics: OperatorMetrics) -> list[Coroutine[Any, Any, None]]:
        settings = self._settings
        servers = [
            serve(health_app(self._alive, self._is_ready), settings.health_port),
            serve(metrics_app(metrics.registry), settings.metrics_port),
        ]
        if settings.webhook_enabled:
            servers.append(serve(webhook_app(), settings.webhook_port, certificates=settings.webhook_certificates))
        return servers

    async def _watch(self, stop: asyncio.Event) -> None:
        namespaces = self._settings.watch_namespaces
        await kopf.operator(
            registry=watch_registry(self._mirror, self._queue.add, canary=self._canary.saw),
            settings=watch_settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
            ready_flag=self._ready,
        )

    def _lead_changed(self, leads: bool) -> None:
        self._mirror.doubt_all()
        if leads:
            for namespace, name in self._mirror.jobs():
                self._queue.add(("job", namespace, name))
            for key in self._mirror.all_snapshots():
                self._queue.add(("snapshot", *key))

    def _alive(self) -> str | None:
        return self._canary.problem() if self._settings.canary else None

    def _is_ready(self) -> str | None:
        return None if self._ready.is_set() else "not watching yet"


async def run_operator(settings: OperatorSettings) -> None:
    """Run one replica.

    Raises:
        StatefulSparkError: The API server cannot be reached, or refuses what the operator needs.
    """
    cluster = Cluster()
    try:
        await Operator(settings, cluster).run()
    except StatefulSparkError:
        _log.exception("the operator ends")
        raise
