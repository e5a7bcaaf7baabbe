"""What sources report of themselves: Spark's own form of it, and anything that a connector may say instead."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime.tests.job.metrics.test_collection import KAFKA

from statefulspark.coordinator.reported_metrics import Lag
from statefulspark.job.metrics.sources import METRICS_MAX, PARTITIONS_MAX, SOURCES_MAX, lag_of, sources_of
from statefulspark.pipeline.tick_reader import TICK

RECORDED = json.loads(Path(__file__).with_name("kafka-progress.json").read_text(encoding="utf-8"))
"""Of the third batch of `kafka/limited_query.py`, which reads 30 records at a time, on PySpark 4.3.0."""
FILES = {
    "description": "FileStreamSource[s3://user:secret@bucket/in]", "startOffset": {"logOffset": 3}, "endOffset": {"logOffset": 4}, "latestOffset": None,
    "numInputRows": 9, "inputRowsPerSecond": "NaN", "processedRowsPerSecond": 4.5,
}  # fmt: skip


def test_kafkas_offsets_give_the_rows_behind_of_all_partitions() -> None:
    """Summed from the offsets themselves, since its metrics have only the largest and the mean."""
    (kafka,) = sources_of({"sources": [KAFKA]})
    assert (kafka.description, kafka.input_rows, kafka.backlog_rows) == ("KafkaV2[Subscribe[orders]]", 50, 30)
    assert kafka.metrics == {"avgOffsetsBehindLatest": 15.0, "maxOffsetsBehindLatest": 20.0, "minOffsetsBehindLatest": 10.0}
    (same,) = sources_of({"sources": [KAFKA | {"latestOffset": '{"orders":{"0":30,"1":50}}'}]})
    assert same.backlog_rows == 30, "offsets may be text"
    (late,) = sources_of({"sources": [KAFKA | {"latestOffset": {"orders": {"0": 30, "1": 39, "2": 7}}}]})
    assert late.backlog_rows == 20, "a partition that the batch does not know, and one that was truncated, count nothing"


def test_files_outstanding_are_files_and_a_source_that_says_nothing_reports_no_backlog() -> None:
    (loader,) = sources_of({"sources": [FILES | {"metrics": {"numFilesOutstanding": "17", "numBytesOutstanding": "4096"}}]})
    assert (loader.backlog_rows, loader.backlog_files, loader.backlog_bytes) == (None, 17, 4096)
    (files,) = sources_of({"sources": [FILES]})
    assert (files.backlog_rows, files.backlog_files, files.backlog_bytes) == (None, None, None)
    assert files.description == "FileStreamSource[s3://***@bucket/in]"
    assert (files.input_rows_per_second, files.processed_rows_per_second) == (None, 4.5)


def test_tick_sources_are_left_out() -> None:
    """Spark describes sources in Python by a Java class; a source of the user's in Python is shown."""
    python = {"description": "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow@5a2b"}
    own = python | {"endOffset": {"page": 7}, "numInputRows": 3}
    found = sources_of({"sources": [python | {"endOffset": {TICK: 1_790_000_000_000}}, own, KAFKA]})
    assert [one.input_rows for one in found] == [3, 50]
    assert sources_of(None) == sources_of({}) == ()


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20), lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=4) | st.lists(inner, max_size=3), max_leaves=8)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from([*KAFKA, "other"]), JSON, max_size=8), max_size=4))
def test_whatever_a_connector_says_is_bounded_and_finite(sources: list[dict[str, Any]]) -> None:
    for found in sources_of({"sources": sources}):
        assert len(found.description) <= 300
        assert all(math.isfinite(value) for value in found.metrics.values())
        assert all(count is None or 0 <= count < 1 << 53 for count in (found.backlog_rows, found.backlog_files, found.backlog_bytes))


def test_their_number_and_that_of_their_metrics_are_bounded() -> None:
    many = {"description": "x" * 1000, "metrics": {f"m{i}": str(i) for i in range(1000)}}
    found = sources_of({"sources": [many] * 1000})
    assert len(found) == SOURCES_MAX
    assert len(found[0].metrics) == METRICS_MAX


def test_the_lag_of_each_partition_in_what_spark_says_of_kafka() -> None:
    sources = sources_of(RECORDED)
    (kafka,) = sources
    assert [(one.topic, one.partition, one.rows) for one in kafka.partitions] == [
        ("clicks", "2", 292),
        ("clicks", "1", 221),
        ("clicks", "0", 0),
    ]
    assert kafka.metrics == {"avgOffsetsBehindLatest": 171.0, "maxOffsetsBehindLatest": 292.0, "minOffsetsBehindLatest": 0.0}
    assert lag_of(sources, RECORDED) == Lag(rows=513, files=None, bytes=None, unknown_sources=0, at_ms=1_795_948_268_247)


def test_the_total_leaves_out_what_is_unknown() -> None:
    """And says of how many sources it is. Without any source, or before the first batch, there is none."""
    loader = FILES | {"metrics": {"numFilesOutstanding": "17", "numBytesOutstanding": "4096"}}
    progress: dict[str, Any] = {"sources": [KAFKA, KAFKA, FILES, loader], "timestamp": "2026-11-29T09:30:00.123Z"}
    assert lag_of(sources_of(progress), progress) == Lag(rows=60, files=17, bytes=4096, unknown_sources=1, at_ms=1_795_944_600_123)
    unknown = {"sources": [FILES], "timestamp": None}
    assert lag_of(sources_of(unknown), unknown) == Lag(rows=None, files=None, bytes=None, unknown_sources=1, at_ms=None)
    assert lag_of((), None) is lag_of((), {"sources": []}) is None


def test_the_partitions_that_are_listed_are_those_that_are_furthest_behind() -> None:
    """At most 100 over all sources; the totals have all of them."""
    latest = {"t": {str(i): i for i in range(1000)}}
    many = KAFKA | {"latestOffset": latest, "endOffset": {"t": dict.fromkeys(latest["t"], 0)}}
    (one,) = sources_of({"sources": [many]})
    assert [part.rows for part in one.partitions] == list(range(999, 899, -1))
    assert (one.backlog_rows, one.partitions_left_out) == (499_500, 900)
    found = sources_of({"sources": [many] * 30})
    assert all([part.rows for part in each.partitions] == [999, 998, 997] for each in found)
    assert sum(len(each.partitions) for each in sources_of({"sources": [many] * 1000})) <= PARTITIONS_MAX


@pytest.mark.parametrize(
    "latest",
    [None, "", "{", "null", "[" * 100_000, [], 7, {}, {"t": None}, {"t": 7}, {"t": {"0": None}}, {"t": {"0": True}}, {"t": {"0": "9"}}],
)
def test_offsets_of_another_form_are_unknown(latest: Any) -> None:
    (found,) = sources_of({"sources": [KAFKA | {"latestOffset": latest}]})
    assert (found.backlog_rows, found.partitions) == (None, ())


@pytest.mark.parametrize("sources", [None, {}, 7, "x", [None, 7, "x", []]])
def test_a_report_without_sources_has_none(sources: Any) -> None:
    assert sources_of({"sources": sources}) == ()


@pytest.mark.parametrize("timestamp", [None, 7, "", "yesterday", "2026-11-29T09:30:00", "2026-13-29T09:30:00Z"])
def test_a_time_of_another_form_is_unknown(timestamp: Any) -> None:
    lag = lag_of(sources_of({"sources": [KAFKA]}), {"timestamp": timestamp})
    assert lag is not None
    assert lag.at_ms is None


def test_huge_offsets_and_metrics_stay_within_what_the_api_holds() -> None:
    huge = KAFKA | {
        "latestOffset": {"orders": {"0": 10**30, "1": 50}},
        "numInputRows": 10**400,
        "metrics": {"numFilesOutstanding": "1e300"},
    }
    (found,) = sources_of({"sources": [huge]})
    assert found.backlog_rows == found.partitions[0].rows == found.backlog_files == (1 << 53) - 1
    assert found.input_rows == 0, "not a number of any machine"
