"""Reads from Spark's progress what each source of a query reports: rows, rates and how far it is behind. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from statefulspark.coordinator.reported_metrics import Lag, PartitionBacklog, SourceStatus
from statefulspark.logs.redaction import Redaction
from statefulspark.pipeline.tick_reader import TICK

SOURCES_MAX: Final = 100
METRICS_MAX: Final = 20
"""Metrics of its own that are shown of a source."""
PARTITIONS_MAX: Final = 100
"""Partitions that are listed, over all sources; each source lists at least one."""
_TEXT_MAX: Final = 300
_COUNT_MAX: Final = (1 << 53) - 1
"""Greatest count that the page and the custom resource hold exactly."""
_FILES: Final = "numFilesOutstanding"
_BYTES: Final = "numBytesOutstanding"
_ROWS: Final = ("totalOffsetsBehindLatest", "numRecordsOutstanding", "numRowsOutstanding")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_redaction = Redaction()


def sources_of(progress: Mapping[str, Any] | None) -> tuple[SourceStatus, ...]:
    """Return what the sources of the last batch report, without the tick sources of keyed steps.

    Args:
        progress: Spark's report of the last batch as JSON; None before the first.
    """
    sources = progress.get("sources") if progress is not None else None
    found = [source for source in sources if isinstance(source, dict) and not _is_ticks(source)] if isinstance(sources, list) else []
    found = found[:SOURCES_MAX]
    shown = max(1, PARTITIONS_MAX // max(1, len(found)))
    return tuple(_status(source, shown) for source in found)


def lag_of(sources: Iterable[SourceStatus], progress: Mapping[str, Any] | None) -> Lag | None:
    """Return the sum over the sources of the last batch; None before the first batch, and for a query without sources.

    Args:
        sources: As `sources_of` returns them.
        progress: The same report.
    """
    every = tuple(sources)
    if not every:
        return None
    return Lag(
        rows=_sum(one.backlog_rows for one in every),
        files=_sum(one.backlog_files for one in every),
        bytes=_sum(one.backlog_bytes for one in every),
        unknown_sources=sum(one.backlog_rows is None and one.backlog_files is None and one.backlog_bytes is None for one in every),
        at_ms=_milliseconds(progress.get("timestamp")) if progress is not None else None,
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return min(sum(known), _COUNT_MAX) if known else None


def _milliseconds(value: Any) -> int | None:
    """Return the time of a text such as ``2026-11-29T09:30:00.123Z``; None for anything else."""
    try:
        instant = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return round((instant - _EPOCH) / timedelta(milliseconds=1)) if instant.tzinfo is not None else None


def _is_ticks(source: Mapping[str, Any]) -> bool:
    """True for a tick source, which Spark describes by a Java class, like every source in Python; its offsets are `TickReader`'s."""
    offset = source.get("endOffset")
    return isinstance(offset, dict) and offset.keys() == {TICK} and "Python" in str(source.get("description"))


def _status(source: Mapping[str, Any], shown: int) -> SourceStatus:
    metrics = dict(list(_metrics(source))[:METRICS_MAX])
    rows = next((metrics[name] for name in _ROWS if name in metrics), None)
    partitions = _partitions(source)
    behind = _sum(one.rows for one in partitions)
    return SourceStatus(
        description=_redaction.text(str(source.get("description", "")))[:_TEXT_MAX],
        input_rows=_count(source.get("numInputRows")) or 0,
        input_rows_per_second=_number(source.get("inputRowsPerSecond")),
        processed_rows_per_second=_number(source.get("processedRowsPerSecond")),
        backlog_rows=behind if rows is None else _count(rows),
        backlog_files=_count(metrics.get(_FILES)),
        backlog_bytes=_count(metrics.get(_BYTES)),
        partitions=tuple(replace(one, topic=one.topic[:_TEXT_MAX], partition=one.partition[:_TEXT_MAX]) for one in partitions[:shown]),
        partitions_left_out=len(partitions[shown:]),
        metrics=metrics,
    )


def _metrics(source: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the metrics that are numbers; Spark says them as text."""
    found = source.get("metrics")
    for name, text in found.items() if isinstance(found, dict) else ():
        value = _number(text)
        if value is not None:
            yield str(name)[:_TEXT_MAX], value


def _partitions(source: Mapping[str, Any]) -> list[PartitionBacklog]:
    """Return the rows between the end of the last batch and the latest offset of each partition, most first; empty for sources without offsets like Kafka's."""
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    if not latest or not end:
        return []
    found = [
        PartitionBacklog(topic=topic, partition=partition, rows=min(max(0, offset - end[topic, partition]), _COUNT_MAX))
        for (topic, partition), offset in latest.items()
        if (topic, partition) in end
    ]
    return sorted(found, key=lambda one: (-one.rows, one.topic, len(one.partition), one.partition))


def _offsets(value: Any) -> dict[tuple[str, str], int] | None:
    """Return offsets of the form ``{"topic": {"0": 17}}``, None if they have another."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if not isinstance(value, dict) or not all(isinstance(partitions, dict) for partitions in value.values()):
        return None
    found = {(topic, partition): offset for topic, partitions in value.items() for partition, offset in partitions.items()}
    return found if all(isinstance(offset, int) and not isinstance(offset, bool) for offset in found.values()) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else min(max(0, int(number)), _COUNT_MAX)
