"""Reads from Spark's progress what each source of a query reports: rows, rates and how far it is behind. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from statefulspark.coordinator.reported_metrics import SourceStatus
from statefulspark.logs.redaction import Redaction
from statefulspark.pipeline.tick_reader import TICK

SOURCES_MAX: Final = 100
METRICS_MAX: Final = 20
"""Metrics of its own that are shown of a source."""
_TEXT_MAX: Final = 300
_FILES: Final = "numFilesOutstanding"
_BYTES: Final = "numBytesOutstanding"
_ROWS: Final = ("totalOffsetsBehindLatest", "numRecordsOutstanding", "numRowsOutstanding")
_redaction = Redaction()


def sources_of(progress: Mapping[str, Any] | None) -> tuple[SourceStatus, ...]:
    """Return what the sources of the last batch report, without the tick sources of keyed steps.

    Args:
        progress: Spark's report of the last batch as JSON; None before the first.
    """
    sources = progress.get("sources", ()) if progress is not None else ()
    return tuple(_status(source) for source in sources if not _is_ticks(source))[:SOURCES_MAX]


def _is_ticks(source: Mapping[str, Any]) -> bool:
    """True for a tick source, which Spark describes by a Java class, like every source in Python; its offsets are `TickReader`'s."""
    offset = source.get("endOffset")
    return isinstance(offset, dict) and offset.keys() == {TICK} and "Python" in str(source.get("description"))


def _status(source: Mapping[str, Any]) -> SourceStatus:
    metrics = dict(list(_metrics(source))[:METRICS_MAX])
    rows = next((metrics[name] for name in _ROWS if name in metrics), None)
    return SourceStatus(
        description=_redaction.text(str(source.get("description", "")))[:_TEXT_MAX],
        input_rows=_count(source.get("numInputRows")) or 0,
        input_rows_per_second=_number(source.get("inputRowsPerSecond")),
        processed_rows_per_second=_number(source.get("processedRowsPerSecond")),
        backlog_rows=_partitions_behind(source) if rows is None else _count(rows),
        backlog_files=_count(metrics.get(_FILES)),
        backlog_bytes=_count(metrics.get(_BYTES)),
        metrics=metrics,
    )


def _metrics(source: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the metrics that are numbers; Spark says them as text."""
    found = source.get("metrics")
    for name, text in found.items() if isinstance(found, dict) else ():
        value = _number(text)
        if value is not None:
            yield str(name)[:_TEXT_MAX], value


def _partitions_behind(source: Mapping[str, Any]) -> int | None:
    """Return the rows between the end of the last batch and the latest offsets of a source with partitions, as Kafka's; None for others."""
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    if not latest or not end:
        return None
    return sum(max(0, offset - end[partition]) for partition, offset in latest.items() if partition in end)


def _offsets(value: Any) -> dict[tuple[str, str], int] | None:
    """Return offsets of the form ``{"topic": {"0": 17}}``, None if they have another."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
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
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else max(0, int(number))
