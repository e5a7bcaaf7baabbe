"""The job of `session_windows.py`, as a user would write it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from statefulspark import AggregateFunction, EventTimeSessionWindows, ProcessWindowFunction, Time, TimeWindow, Types

INPUT = "key string, at timestamp, amount bigint"
OUTPUT = "key string, start bigint, end bigint, count bigint"
GAP_MS = 60_000


class Count(AggregateFunction[Any, int, int]):
    """Counts rows."""

    def create_accumulator(self) -> int:
        """Start at 0."""
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        """One more."""
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        """The number."""
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        """Of two sessions that have become one."""
        return acc_a + acc_b


class Bounds(ProcessWindowFunction):
    """Adds the key and the bounds of the session."""

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: list[Any]) -> Iterable[Any]:
        """Of one session."""
        window = cast("TimeWindow", context.window())
        yield key, window.start, window.end, elements[0]


def pipeline(job: Any) -> Any:
    """The job of ``statefulspark run``."""
    events = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(job.args[0])
    sessions = (
        job.key_by(events, "key")
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(GAP_MS)))
        .aggregate(Count(), Bounds(), Types.LONG(), OUTPUT, uid="sessions", event_time="at")
    )
    return sessions.writeStream.format("parquet").option("path", job.args[1])
