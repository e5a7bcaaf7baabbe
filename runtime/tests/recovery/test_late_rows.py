"""Rows that windows drop as late: counted with the batches that are committed, and said once."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from statefulspark import Time, TumblingEventTimeWindows
from statefulspark.testing import BATCH, TestingJob, WindowHarness

ROWS = "user STRING, n BIGINT, at BIGINT"


def summed() -> Any:
    """The function of a step of minutes."""
    minutes = WindowHarness(TumblingEventTimeWindows.of(Time.minutes(1)), ROWS, key="user")
    return minutes.reduce(lambda a, b: (a.user, a.n + b.n, b.at), uid="sum", event_time="at")._step.function


def test_they_are_counted_and_said_once() -> None:
    with TestingJob(summed(), ROWS, ROWS, key="user", event_time="at", parallelism=1) as job, capture_logs() as logs:
        job.run([("ada", 1, 10_000), BATCH, ("ada", 1, 130_000), BATCH])
        job.run([("ada", 1, 20_000), ("bob", 1, 30_000), BATCH, ("ada", 1, 140_000), ("ada", 1, 30_000), BATCH])
        totals = job._runner.driver.coordinator.view().totals
        assert [total.late_rows_dropped for total in totals.values()] == [3]
    warnings = [each for each in logs if "drops rows" in each["event"]]
    assert [(each["log_level"], each["uid"], each["rows"]) for each in warnings] == [("warning", "testing", 2)]
    assert all(remedy in warnings[0]["event"] for remedy in ("longer watermark", "allowed_lateness()", "side_output_late_data()"))
