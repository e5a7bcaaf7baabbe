"""What sources and functions report, as the API and the command line show it."""

from __future__ import annotations

import json
import math

import httpx
from runtime.tests.api_server.fake_job import FakeJob
from runtime.tests.job.metrics.test_user_metrics import gauge, slot

from statefulspark.api_server.models import StatusModel
from statefulspark.cli.job_tables import status_tables
from statefulspark.coordinator.reported_metrics import SourceStatus, UserMetricStatus
from statefulspark.job.metrics.user_metrics import user_metrics_of

SOURCES = (
    SourceStatus(
        description="KafkaV2[Subscribe[orders]]",
        input_rows=50_000,
        processed_rows_per_second=12_345.6,
        backlog_rows=1_200_000,
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
    assert [row[3] for row in tables["sources"]] == ["1,200,000 rows", "17 files, 4.0 KiB", "not reported by it"]
    metrics = tables["metrics of functions (3 more in /metrics)"]
    assert [row[1:] for row in metrics[:3]] == [
        ("rejected", "counter", "17"),
        ("delay", "distribution", "4, mean 2.5"),
        ("cached", "gauge", "1 to 2"),
    ]
    assert all(sum(map(len, row)) + 3 * len(row) + 1 <= 80 for table in tables.values() for row in table)
