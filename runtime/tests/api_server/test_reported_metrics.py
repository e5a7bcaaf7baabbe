"""What sources and functions report, as the API and the command line show it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import httpx
from runtime.tests.api_server.fake_job import FakeJob
from runtime.tests.job.metrics.test_user_metrics import gauge, slot

from statefulspark.api_server.models.job import StatusModel
from statefulspark.cli.common.job_tables import lag_lines, status_tables
from statefulspark.coordinator.reported_metrics import Lag, PartitionBacklog, SourceStatus, UserMetricStatus
from statefulspark.job.metrics.user_metrics import user_metrics_of

SOURCES = (
    SourceStatus(
        description="KafkaV2[Subscribe[orders]]",
        input_rows=50_000,
        processed_rows_per_second=12_345.6,
        backlog_rows=1_200_000,
        partitions=(
            PartitionBacklog(topic="orders", partition="3", rows=900_000),
            PartitionBacklog(topic="orders", partition="0", rows=300_000),
        ),
        metrics={"maxOffsetsBehindLatest": 9.0},
    ),
    SourceStatus(description="FileStreamSource[s3://bucket/in]", input_rows=9, backlog_files=17, backlog_bytes=4096),
    SourceStatus(description="RateStreamV2[rowsPerSecond=5]", input_rows=0),
)
METRICS = {
    "turnaround": (
        UserMetricStatus(name="rejected", kind="counter", value=17.0, slots={0: 9.0, 1: 8.0}),
        UserMetricStatus(name="delay", kind="distribution", value=4.0, sum=10.0, min=-1.0, max=9.0),
        UserMetricStatus(name="cached", kind="gauge", value=3.0, min=1.0, max=2.0, slots={0: 1.0, 1: 2.0}),
    )
}


def test_nan_and_infinity_leave_the_status_readable(http: httpx.Client, job: FakeJob) -> None:
    """JSON has no number for them: they are null, and the page and the operator go on reading the status."""
    odd = user_metrics_of([slot(0, a={"x": gauge(math.nan), "y": gauge(math.inf), "z": gauge(1)})])
    job.change(user_metrics=odd)
    found = json.loads(http.get("/v1/status").text, parse_constant=lambda name: 1 / 0)["user_metrics"]["a"]
    assert [(one["value"], one["slots"]) for one in found] == [(None, {"0": None}), (None, {"0": None}), (1.0, {"0": 1.0})]


def test_the_status_says_how_far_sources_are_behind_and_which_do_not_say(http: httpx.Client, job: FakeJob) -> None:
    job.change(sources=SOURCES, user_metrics=METRICS, user_metrics_left_out=3)
    found = http.get("/v1/status").json()
    assert [(one["backlog_rows"], one["backlog_files"], one["backlog_bytes"]) for one in found["sources"]] == [
        (1_200_000, None, None),
        (None, 17, 4096),
        (None, None, None),
    ]
    assert found["user_metrics"]["turnaround"][0]["slots"] == {"0": 9.0, "1": 8.0}
    assert found["user_metrics_left_out"] == 3
    assert StatusModel.model_validate(found) == StatusModel.of(job.status())


def test_statefulspark_status_shows_both_in_80_columns(job: FakeJob) -> None:
    job.change(sources=SOURCES, user_metrics=METRICS | {"u" * 200: METRICS["turnaround"]}, user_metrics_left_out=3)
    tables = {table.title: [tuple(map(str, row)) for row in table.rows] for table in status_tables(StatusModel.of(job.status()))}
    assert [row[0] for row in tables["sources"]] == [
        "KafkaV2[Subscribe[orders]]",
        "FileStreamSource[s3://bucket/in]",
        "RateStreamV2[rowsPerSecond=5]",
    ]
    metrics = tables["metrics of functions (3 more in /metrics)"]
    assert [row[1:] for row in metrics[:3]] == [
        ("rejected", "counter", "17"),
        ("delay", "distribution", "4, mean 2.5"),
        ("cached", "gauge", "1 to 2"),
    ]
    assert all(sum(map(len, row)) + 3 * len(row) + 1 <= 80 for table in tables.values() for row in table)


def test_statefulspark_status_says_of_each_source_how_far_it_is_behind(job: FakeJob) -> None:
    """With its name as people know it; a source that does not report it is unknown, and old figures have their time."""
    lag = Lag(rows=1_200_000, files=17, bytes=4096, unknown_sources=1, at_ms=1_790_000_000_000)
    job.change(sources=SOURCES, lag=lag, idle=False)
    lines = [
        "orders (Kafka): 1,200,000 records behind, most in partition 3 (900,000)",
        "s3://bucket/in (files): 17 files, 4.0 KiB behind",
        "RateStreamV2[rowsPerSecond=5]: unknown how far behind, because this source does not report it",
    ]
    status = StatusModel.of(job.status())
    assert lag_lines(status, 1_790_000_060_000) == lines
    late = [*lines, "The sources reported this for the last batch, which began at 2026-09-21 14:13:20Z."]
    assert lag_lines(status, 1_790_000_060_001) == late
    job.change(idle=True)
    assert lag_lines(StatusModel.of(job.status()), 1_790_000_600_000) == lines, "everything was read"
    two = (*SOURCES[0].partitions[:1], PartitionBacklog(topic="refunds\n", partition="0", rows=1))
    job.change(sources=(replace(SOURCES[0], description="KafkaV2[SubscribePattern[o.*|re\x1b.*]]", partitions=two),), lag=None)
    (line,) = lag_lines(StatusModel.of(job.status()), 0)
    assert line == "o.*|re\\x1b.* (Kafka): 1,200,000 records behind, most in orders, partition 3 (900,000)"
    level = SourceStatus(description="KafkaV2[Assign[{}]]", input_rows=0, backlog_rows=0, partitions=(replace(two[0], rows=0), two[1]))
    job.change(sources=(level,))
    assert lag_lines(StatusModel.of(job.status()), 0) == ["{} (Kafka): 0 records behind"]
