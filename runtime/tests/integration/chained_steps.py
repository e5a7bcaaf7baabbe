"""A pipeline of keyed steps after each other: the README's sessions by the hour of their ends, and windows of windows of windows."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import cloudpickle
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from statefulspark import ProcessWindowFunction, Time, TumblingEventTimeWindows

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "02-sessions"))
sessions = import_module("sessions")
cloudpickle.register_pickle_by_value(sessions)
INPUT = "account string, at timestamp, amount bigint, shop string"
COUNTED = "what string, start_ms bigint, number bigint, total bigint"


class Total(ProcessWindowFunction):
    """Counts the rows of a window, and sums them up."""

    def __init__(self, what: str) -> None:
        self.what = what

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        rows = list(elements)
        yield self.what, context.window().start, len(rows), sum(row.total for row in rows)


def chained(job: Any) -> Any:
    """Sessions go into hours with a watermark of their own; the other windows have that of the step before. Rows of ``windows`` go to these alone."""
    rows = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(job.args[0])
    clicks = rows.where("shop != 'windows'")
    ended = job.key_by(clicks, "account").process(
        sessions.Sessions(), "user string, total bigint, end_ms bigint", uid="sessions", event_time="at", watermark="5 minutes"
    )
    ended = ended.withColumn("what", F.lit("sessions")).withColumn("end", F.timestamp_millis("end_ms"))
    hours = (
        job.key_by(ended, "what")
        .window(TumblingEventTimeWindows.of(Time.hours(1)))
        .process(Total("sessions"), COUNTED, uid="session-hours", event_time="end", watermark="5 minutes")
    )
    stream = rows.withColumn("what", F.lit("rows")).withColumn("total", F.lit(1).cast("bigint")).withColumnRenamed("at", "end")
    for uid, minutes in (("minutes", 1), ("hours", 60), ("days", 24 * 60)):
        made = (
            job.key_by(stream, "what")
            .window(TumblingEventTimeWindows.of(Time.minutes(minutes)))
            .process(Total("rows"), COUNTED, uid=uid, event_time="end", watermark="5 minutes" if uid == "minutes" else None)
        )
        stream = made.withColumn(
            "end", F.timestamp_millis("start_ms") + F.expr(f"INTERVAL {minutes} MINUTES") - F.expr("INTERVAL 1 SECOND")
        )
    return hours.unionByName(stream.drop("end")).writeStream.format("parquet").option("path", job.args[1]).outputMode("append")
