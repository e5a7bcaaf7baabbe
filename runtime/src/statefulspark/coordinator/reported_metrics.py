"""Reports of a query's sources and of a job's functions: data classes of the status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statefulspark.process.api.metrics import MetricKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBacklog:
    """A partition of a topic, as Kafka's."""

    topic: str
    partition: str
    rows: int
    """Rows that it had and the last batch did not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Sum over the sources of a query, as of its last batch. None for a unit that no source reports."""

    rows: int | None
    files: int | None
    bytes: int | None
    unknown_sources: int
    """Sources that report none of them."""
    at_ms: int | None
    """Time at which Spark planned that batch, milliseconds since the epoch; None if it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """A source of the query, as Spark reported it with the last batch."""

    description: str
    """Spark's name of it, with where it reads."""
    input_rows: int
    """Of the last batch."""
    input_rows_per_second: float | None = None
    """Rows that arrived, by Spark's estimate; None if it has none."""
    processed_rows_per_second: float | None = None
    backlog_rows: int | None = None
    """Rows that the source had and the last batch did not read; None if the source does not report it, as in the next two."""
    backlog_files: int | None = None
    backlog_bytes: int | None = None
    partitions: tuple[PartitionBacklog, ...] = ()
    """Those with most rows first; at most 100 over all sources. Empty if the source has none, or does not report them."""
    partitions_left_out: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The source's own, at most 20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMetricStatus:
    """A metric that a function has registered, over the slots that have reported it. None stands for NaN and infinity."""

    name: str
    kind: MetricKind
    value: float | None
    """Sum over slots; of a distribution, the number of its values."""
    sum: float | None = None
    """Of all values of a distribution."""
    min: float | None = None
    """Least value of a distribution, or of a gauge over slots."""
    max: float | None = None
    slots: Mapping[int, float | None] = field(default_factory=dict)
    """Value by slot; empty if the status has no room for it."""
