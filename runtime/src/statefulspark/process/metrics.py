"""User-defined metrics, registered by functions with PyFlink's names."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]


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
        values: dict[str, float] = {}
        for name, metric in self._metrics.items():
            full = self._prefix + name
            if isinstance(metric, Counter | Meter):
                values[full] = metric.get_count()
            elif isinstance(metric, Distribution):
                values[f"{full}.count"], values[f"{full}.sum"] = metric.count, metric.sum
                if metric.min is not None and metric.max is not None:
                    values[f"{full}.min"], values[f"{full}.max"] = metric.min, metric.max
            else:
                values[full] = metric()
        for group in self._groups.values():
            values.update(group.values())
        return values
