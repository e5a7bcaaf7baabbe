"""What the operator counts and times, for Prometheus."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from statefulspark_operator.api.jobs import LifecycleState
from statefulspark_operator.reconcile.mirror import Mirror

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)


class OperatorMetrics:
    """All metrics of one operator process.

    Args:
        mirror: Where jobs are counted.
        queued: How many keys the queue holds.
        leads: Whether this replica acts.
    """

    def __init__(self, mirror: Mirror, *, queued: Callable[[], int], leads: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry()
        self._looks = Counter(
            "statefulspark_operator_reconcile", "Looks at jobs and snapshots, by how they ended.", ["outcome"], registry=self.registry
        )
        self._took = Histogram(
            "statefulspark_operator_reconcile_seconds", "How long a look took.", buckets=_SECONDS, registry=self.registry
        )
        self._waited = Histogram(
            "statefulspark_operator_queue_wait_seconds",
            "How long a key waited in the queue after it was due.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._requests = Histogram(
            "statefulspark_operator_api_request_seconds",
            "How long the API server took to answer, by verb and code (none: no answer).",
            ["verb", "code"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        Gauge(
            "statefulspark_operator_queue_depth", "Jobs and snapshots that are to be looked at, now or later.", registry=self.registry
        ).set_function(queued)
        Gauge("statefulspark_operator_leader", "1 when this replica acts.", registry=self.registry).set_function(lambda: float(leads()))
        self.registry.register(_JobStates(mirror))

    def looked(self, waited_s: float, took_s: float, outcome: str) -> None:
        """A look has ended."""
        self._looks.labels(outcome).inc()
        self._took.observe(took_s)
        self._waited.observe(max(0.0, waited_s))

    def asked(self, verb: str, code: str, took_s: float) -> None:
        """The API server has answered a request, or has not."""
        self._requests.labels(verb, code).observe(took_s)


class _JobStates(Collector):
    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def collect(self) -> list[GaugeMetricFamily]:
        tally = Tally({state.value: 0 for state in LifecycleState})
        for namespace, name in self._mirror.jobs():
            job = self._mirror.job(namespace, name)
            state = ((job or {}).get("status") or {}).get("lifecycleState", LifecycleState.CREATED.value)
            tally[state] += 1
        family = GaugeMetricFamily("statefulspark_operator_jobs", "Jobs by the state of their life cycle.", labels=["state"])
        for state, count in sorted(tally.items()):
            family.add_metric([state], count)
        return [family]
