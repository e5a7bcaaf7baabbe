"""User-defined metrics, registered by functions with PyFlink's names."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]

LATE_RECORDS: Final = "numLateRecordsDropped"
"""Name of the counter of rows that a step has dropped as late, Flink's."""

MetricKind = Literal["counter", "gauge", "meter", "distribution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMetric:
    """A metric of a function at one moment."""

    kind: MetricKind
    value: float
    """Of a distribution, the number of its values; a gauge may return NaN."""
    sum: float = 0.0
    """Of a distribution's values, as the next two."""
    min: float | None = None
    max: float | None = None


class Metric(ABC):  # noqa: B024  # as in PyFlink: a common base, nothing to implement
    """Base class of counters, meters and distributions; `MetricGroup` makes them."""

    __slots__ = ()


class Counter(Metric):
    """A number that goes up and down."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Add ``n``."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract ``n``."""
        self._count -= n

    def get_count(self) -> int:
        """Return the number."""
        return self._count


class Meter(Metric):
    """Counts events; the rate is taken where metrics are collected."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def mark_event(self, value: int = 1) -> None:
        """Count ``value`` events."""
        self._count += value

    def get_count(self) -> int:
        """Return the number of events so far."""
        return self._count


class Distribution(Metric):
    """Smallest, largest, sum and number of the values given."""

    __slots__ = ("count", "max", "min", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self.min: int | None = None
        self.max: int | None = None

    def update(self, value: int) -> None:
        """Take one more value."""
        self.count += 1
        self.sum += value
        self.min = value if self.min is None else min(self.min, value)
        self.max = value if self.max is None else max(self.max, value)


class MetricGroup:
    """A named group of metrics of one step in one slot.

    Metrics count executions. They start from zero with each copy of the function: when the slot starts, and when a batch is rolled back.

    >>> group = MetricGroup()  # in a function: runtime_context.get_metrics_group()
    >>> late = group.counter("late")
    >>> late.inc()
    >>> late.get_count()
    1
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._groups: dict[str, MetricGroup] = {}
        self._metrics: dict[str, Counter | Meter | Distribution | Callable[[], int]] = {}

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return the group below this one called ``name`` (and ``extra``)."""
        group = self._groups.setdefault(name, MetricGroup(f"{self._prefix}{name}."))
        return group if extra is None else group.add_group(extra)

    def counter(self, name: str) -> Counter:
        """Register a counter."""
        metric = Counter()
        self._metrics[name] = metric
        return metric

    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        """Register a function that is called for the value when metrics are collected."""
        self._metrics[name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Register a meter; the time span is the collector's business and kept for compatibility."""
        del time_span_in_seconds
        metric = Meter()
        self._metrics[name] = metric
        return metric

    def distribution(self, name: str) -> Distribution:
        """Register a distribution."""
        metric = Distribution()
        self._metrics[name] = metric
        return metric

    def values(self) -> dict[str, float]:
        """Return every metric of this group and those below by dotted name; a distribution gives four numbers."""
        return {name: value for full, metric in self.collect() for name, value in numbers(full, metric)}

    def collect(self) -> Iterator[tuple[str, UserMetric]]:
        """Yield every metric of this group and those below by dotted name, in the order in which they were registered.

        A gauge that raises, or returns something other than a number, is left out.
        """
        for name, metric in list(self._metrics.items()):  # a copy, because functions register from another thread
            full = f"{self._prefix}{name}"
            if isinstance(metric, Distribution):
                yield full, UserMetric(kind="distribution", value=metric.count, sum=metric.sum, min=metric.min, max=metric.max)
            elif isinstance(metric, Counter | Meter):
                yield full, UserMetric(kind="counter" if isinstance(metric, Counter) else "meter", value=metric.get_count())
            else:
                value = None
                with suppress(Exception):
                    value = float(metric())
                if value is not None:
                    yield full, UserMetric(kind="gauge", value=value)
        for group in list(self._groups.values()):
            yield from group.collect()


def count_of(group: MetricGroup, name: str) -> int:
    """Return the number of a counter of this very group, 0 if it has none of that name."""
    metric = group._metrics.get(name)  # noqa: SLF001  of this module
    return metric.get_count() if isinstance(metric, Counter) else 0


def numbers(name: str, metric: UserMetric) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a metric, each under its dotted name."""
    if metric.kind != "distribution":
        yield name, metric.value
        return
    yield f"{name}.count", metric.value
    yield f"{name}.sum", metric.sum
    if metric.min is not None and metric.max is not None:
        yield f"{name}.min", metric.min
        yield f"{name}.max", metric.max
