"""Departures and mean delay per airport and scheduled hour. A flight is reported when it leaves, so reports come late by its delay."""

from collections.abc import Callable, Iterable
from typing import Any

from statefulspark import AggregateFunction, OutputTag, Time, TumblingEventTimeWindows, Types, Window, WindowFunction

COLUMNS = "flight_id INT, origin STRING, scheduled TIMESTAMP, delay INT"
HOUR_MS = 60 * 60 * 1000
LATE = OutputTag("late", COLUMNS)


class Delays(AggregateFunction):
    """Number of flights and sum of their delays."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value.delay

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, float]:
        return accumulator[0], accumulator[1] / accumulator[0]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class PerHour(WindowFunction):
    """Add airport and hour."""

    def apply(self, key: str, window: Window, inputs: list[Any]) -> Iterable[Any]:
        yield key, window.max_timestamp() + 1 - HOUR_MS, *inputs[0]


def written_to(folder: str) -> Callable[[Any, int], None]:
    """Write each batch to a folder of its own, so that a batch that runs again replaces what it has written."""
    return lambda df, batch_id: df.write.mode("overwrite").parquet(f"{folder}/batch={batch_id}")


def pipeline(job: Any) -> Any:
    """Reports in; hours, and reports that come more than three hours after their hour, out."""
    reports = job.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet("out/departures/input")
    hours = (
        job.key_by(reports, "origin")
        .window(TumblingEventTimeWindows.of(Time.hours(1)))
        .allowed_lateness(Time.hours(2))
        .side_output_late_data(LATE)
        .aggregate(
            Delays(),
            PerHour(),
            Types.TUPLE([Types.LONG(), Types.LONG()]),
            "origin STRING, hour_ms BIGINT, departures BIGINT, mean_delay DOUBLE",
            uid="hours",
            event_time="scheduled",
            watermark="1 hour",
        )
    )
    return job.outputs(hours, main=written_to("out/departures/hours"), late=written_to("out/departures/late"))
