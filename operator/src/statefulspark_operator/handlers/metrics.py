"""Prometheus metrics of the operator."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from statefulspark_operator.api.jobs import LifecycleState
from statefulspark_operator.clients.kubernetes import Tree
from statefulspark_operator.reconcile.job.plan.failing_batches import REASON
from statefulspark_operator.reconcile.object_cache import ObjectCache

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)


class OperatorMetrics:
    """All metrics of an operator process.

    Args:
        cache: Object cache with the jobs to count.
        queued: Number of keys in the work queue.
        leads: True if this replica is the leader.
        lost: Number of namespaces that cannot be watched.
    """

    def __init__(
        self, cache: ObjectCache, *, queued: Callable[[], int], leads: Callable[[], bool], lost: Callable[[], int] = lambda: 0
    ) -> None:
        self.registry = CollectorRegistry()
        self._looks = Counter(
            "statefulspark_operator_reconcile", "Reconciliations of jobs and snapshots by outcome.", ["outcome"], registry=self.registry
        )
        self._took = Histogram(
            "statefulspark_operator_reconcile_seconds", "Duration of a reconciliation in seconds.", buckets=_SECONDS, registry=self.registry
        )
        self._waited = Histogram(
            "statefulspark_operator_queue_wait_seconds",
            "Seconds that a key waited in the work queue after it was due.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._requests = Histogram(
            "statefulspark_operator_api_request_seconds",
            "Latency of API server requests in seconds by verb and status code (none: no response).",
            ["verb", "code"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        Gauge(
            "statefulspark_operator_queue_depth", "Jobs and snapshots in the work queue, due now or later.", registry=self.registry
        ).set_function(queued)
        Gauge("statefulspark_operator_leader", "1 if this replica is the leader.", registry=self.registry).set_function(
            lambda: float(leads())
        )
        Gauge(
            "statefulspark_operator_namespaces_lost",
            "Namespaces that the operator cannot watch.",
            registry=self.registry,
        ).set_function(lost)
        self.registry.register(_JobStates(cache))

    def reconciled(self, waited_s: float, took_s: float, outcome: str) -> None:
        """Records a finished reconciliation."""
        self._looks.labels(outcome).inc()
        self._took.observe(took_s)
        self._waited.observe(max(0.0, waited_s))

    def api_request(self, verb: str, code: str, took_s: float) -> None:
        """Records a request to the API server, with or without a response."""
        self._requests.labels(verb, code).observe(took_s)


def _fails(job: Tree) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any((each.get("type"), each.get("status"), each.get("reason")) == ("Degraded", "True", REASON) for each in conditions)


class _JobStates(Collector):
    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache

    def collect(self) -> list[GaugeMetricFamily]:
        failing = 0
        tally = Tally({state.value: 0 for state in LifecycleState})
        for namespace, name in self._cache.jobs():
            job = self._cache.job(namespace, name)
            state = ((job or {}).get("status") or {}).get("lifecycleState", LifecycleState.CREATED.value)
            tally[state] += 1
            failing += _fails(job or {})
        family = GaugeMetricFamily("statefulspark_operator_jobs", "Jobs by lifecycle state.", labels=["state"])
        for state, count in sorted(tally.items()):
            family.add_metric([state], count)
        failing_jobs = GaugeMetricFamily("statefulspark_operator_jobs_failing", "Jobs whose batches are failing.", value=failing)
        return [family, failing_jobs]
