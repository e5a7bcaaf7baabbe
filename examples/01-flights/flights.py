"""Follow every aircraft that left New York in 2013: delays carried from leg to leg, and aircraft that drop out of the rotation.

One keyed step. The key is the aircraft (``tailnum``); the data set knows departures from New York only, so two consecutive
legs of an aircraft are two departures from New York, with the unseen way back between them. A leg gives one row of kind
``leg``; an aircraft that has not left again 24 hours after its last scheduled departure gives one row of kind ``idle``.

The result does not depend on where Spark cuts the stream into batches: a leg that is already past the deadline writes the
``idle`` row itself when the timer has not had a chance to fire.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from statefulspark import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter

    from statefulspark import Job

MINUTE_MS = 60_000
IDLE_AFTER_MS = 24 * 60 * MINUTE_MS
RECENT_LEGS = 5
DELAYS = ["dep_delay", "arr_delay", "previous_arr_delay", "carried_delay", "delay_recent"]
LEG_ONLY = ["flight", "origin", "legs_to_dest", *DELAYS, "scheduled_gap", "actual_gap", "cancelled_before"]

FLIGHT_SCHEMA = """
    flight_id INT, scheduled TIMESTAMP, scheduled_ms BIGINT, tailnum STRING, flight STRING, origin STRING, dest STRING,
    dep_delay INT, arr_delay INT
"""
ROTATION_SCHEMA = """
    tailnum STRING, kind STRING, at_ms BIGINT, leg INT, flight STRING, origin STRING, dest STRING, legs_to_dest INT,
    dep_delay INT, arr_delay INT, previous_arr_delay INT, carried_delay INT, scheduled_gap INT, actual_gap INT,
    cancelled_before INT, delay_recent INT
"""


class AircraftRotation(KeyedProcessFunction):
    """Rows of one aircraft in, ``leg`` and ``idle`` rows out. Delays and gaps are whole minutes, times are ms since 1970 UTC."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the five states of an aircraft."""
        last_leg = Types.ROW_NAMED(
            ["leg", "scheduled_ms", "departed_ms", "arr_delay", "dest"],
            [Types.INT(), Types.LONG(), Types.LONG(), Types.INT(), Types.STRING()],
        )
        self.last_leg = runtime_context.get_state(ValueStateDescriptor("last_leg", last_leg))
        self.deadline_ms = runtime_context.get_state(ValueStateDescriptor("deadline_ms", Types.LONG()))
        self.cancelled = runtime_context.get_state(ValueStateDescriptor("cancelled", Types.INT()))
        self.legs_to = runtime_context.get_map_state(MapStateDescriptor("legs_to", Types.STRING(), Types.INT()))
        self.recent_delays = runtime_context.get_list_state(ListStateDescriptor("recent_delays", Types.INT()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        """Take one flight of this aircraft: flown (it has a departure delay) or cancelled."""
        deadline_ms = self.deadline_ms.value()
        if deadline_ms is not None and ctx.timestamp() >= deadline_ms:
            ctx.timer_service().delete_event_time_timer(deadline_ms)
            yield self._idle(deadline_ms, ctx.get_current_key())
            deadline_ms = None
        if value.dep_delay is None:
            self.cancelled.update((self.cancelled.value() or 0) + 1)
            return
        yield self._leg(value)
        if deadline_ms is not None:
            ctx.timer_service().delete_event_time_timer(deadline_ms)
        self.deadline_ms.update(ctx.timestamp() + IDLE_AFTER_MS)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + IDLE_AFTER_MS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        """Report the aircraft idle: 24 hours went by without another departure."""
        yield self._idle(timestamp, ctx.get_current_key())

    def _leg(self, value: Row) -> Row:
        """Describe this leg against the one before and remember it."""
        last = self.last_leg.value()
        departed_ms = value.scheduled_ms + value.dep_delay * MINUTE_MS
        legs_to_dest = (self.legs_to.get(value.dest) or 0) + 1
        delays = [*self.recent_delays.get(), value.dep_delay][-RECENT_LEGS:]
        row = Row(
            tailnum=value.tailnum,
            kind="leg",
            at_ms=value.scheduled_ms,
            leg=last.leg + 1 if last else 1,
            flight=value.flight,
            origin=value.origin,
            dest=value.dest,
            legs_to_dest=legs_to_dest,
            dep_delay=value.dep_delay,
            arr_delay=value.arr_delay,
            previous_arr_delay=last.arr_delay if last else None,
            carried_delay=carried_delay(last, value),
            scheduled_gap=(value.scheduled_ms - last.scheduled_ms) // MINUTE_MS if last else None,
            actual_gap=(departed_ms - last.departed_ms) // MINUTE_MS if last else None,
            cancelled_before=self.cancelled.value() or 0,
            delay_recent=sum(delays),
        )
        self.last_leg.update(
            Row(leg=row.leg, scheduled_ms=value.scheduled_ms, departed_ms=departed_ms, arr_delay=value.arr_delay, dest=value.dest)
        )
        self.legs_to.put(value.dest, legs_to_dest)
        self.recent_delays.update(delays)
        self.cancelled.clear()
        return row

    def _idle(self, deadline_ms: int, tailnum: str) -> Row:
        """Say since when the aircraft is missing and where it was last seen going."""
        self.deadline_ms.clear()
        last = self.last_leg.value()
        absent = dict.fromkeys(LEG_ONLY)
        return Row(tailnum=tailnum, kind="idle", at_ms=deadline_ms, leg=last.leg, dest=last.dest, **absent)


def carried_delay(last: Row | None, value: Row) -> int | None:
    """How much of this departure's delay the aircraft brought along: the smaller of late arrival before and late departure now.

    None when there is nothing to compare with: no leg before, an unknown arrival (diverted), or an idle day in between.
    """
    if last is None or last.arr_delay is None or value.scheduled_ms - last.scheduled_ms >= IDLE_AFTER_MS:
        return None
    return max(0, min(last.arr_delay, value.dep_delay))


def pipeline(job: Job) -> DataStreamWriter:
    """Read the prepared files, follow the aircraft, write Parquet. The runtime names and starts the query."""
    options = parse_args(job.args)
    if not any(options.input.glob("*.parquet")):
        raise FileNotFoundError(
            f"--input {options.input}: no flights here; write them first: python examples/01-flights/prepare.py {options.input}"
        )
    flights = (
        job.spark.readStream.schema(FLIGHT_SCHEMA)
        .option("maxFilesPerTrigger", options.days_per_batch)
        .option("latestFirst", False)
        .parquet(str(options.input.absolute()))
    )
    known = flights.where(sf.col("tailnum").isNotNull())
    rotation = job.key_by(known, "tailnum").process(
        AircraftRotation(), ROTATION_SCHEMA, uid="rotation", event_time="scheduled", watermark="1 hour"
    )
    result = rotation.withColumn("at", sf.timestamp_millis("at_ms")).drop("at_ms")
    return result.writeStream.format("parquet").option("path", str(options.output.absolute())).outputMode("append")


def parse_args(arguments: list[str]) -> Any:
    """Read the manifest's ``args``."""
    parser = argparse.ArgumentParser(prog="flights.py", description="Arguments of the job, given under spec.args of the manifest.")
    parser.add_argument("--input", type=Path, default=Path("out/demo/input"), help="folder written by prepare.py")
    parser.add_argument("--output", type=Path, default=Path("out/demo/output"), help="folder of Parquet files")
    parser.add_argument("--days-per-batch", type=int, default=4, help="files, one per day, that one batch takes")
    return parser.parse_args(arguments)
