"""Prometheus metrics of the operator."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from statefulspark.config.values.durations import parse_duration
from statefulspark.errors import InvalidInputError
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


def _reason(job: Tree, condition: str) -> str | None:
    """Reason of a condition that is True, otherwise None."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next((each.get("reason") for each in conditions if (each.get("type"), each.get("status")) == (condition, "True")), None)


def _interval_s(job: Tree) -> float | None:
    """The job's checkpoint interval in seconds; None if the spec has none that can be parsed."""
    try:
        return parse_duration(str(((job.get("spec") or {}).get("checkpointing") or {}).get("interval"))) / 1000
    except InvalidInputError:
        return None


class _JobStates(Collector):
    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache

    def collect(self) -> list[GaugeMetricFamily]:
        failing = 0
        stalled = _per_job("stalled", "1 for each job that needs intervention, with the reason of its condition Stalled.", "reason")
        restarts = _per_job("restarts", "Restarts of a lost driver since the job was last stable.")
        interval = _per_job("checkpoint_interval_seconds", "Checkpoint interval of the job's spec.")
        tally = Tally({state.value: 0 for state in LifecycleState})
        for namespace, name in self._cache.jobs():
            job = self._cache.job(namespace, name) or {}
            status = job.get("status") or {}
            tally[status.get("lifecycleState", LifecycleState.CREATED.value)] += 1
            failing += _reason(job, "Degraded") == REASON
            if (reason := _reason(job, "Stalled")) is not None:
                stalled.add_metric([namespace, name, reason], 1)
            if status:
                restarts.add_metric([namespace, name], status.get("restarts", 0))
            if (seconds := _interval_s(job)) is not None:
                interval.add_metric([namespace, name], seconds)
        family = GaugeMetricFamily("statefulspark_operator_jobs", "Jobs by lifecycle state.", labels=["state"])
        for state, count in sorted(tally.items()):
            family.add_metric([state], count)
        failing_jobs = GaugeMetricFamily("statefulspark_operator_jobs_failing", "Jobs whose batches are failing.", value=failing)
        return [family, failing_jobs, stalled, restarts, interval]


def _per_job(name: str, description: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"statefulspark_operator_job_{name}", description, labels=["namespace", "job", *labels])
