"""Pipelines of two keyed steps, one after the other: counts by account, and their totals by shop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

INPUT = "account string, at timestamp, amount bigint, shop string"
COUNTED = "key string, number bigint, total bigint"


def rows_of(job: Any) -> Any:
    """The source: one file per batch."""
    return job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(job.args[0])


def written(job: Any, df: Any) -> Any:
    """The sink."""
    return df.writeStream.format("parquet").option("path", job.args[1]).outputMode("append")


class CountByShop(KeyedProcessFunction):
    """Numbers the rows of a key, sums them up, and hands the shop on as the next key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        self.total.update((self.total.value() or 0) + value.amount)
        yield value.shop, value.at, self.number.value(), self.total.value()


class Volume(KeyedProcessFunction):
    """Numbers what a first step gave out, and sums its running totals."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        self.total.update((self.total.value() or 0) + value.total)
        yield ctx.get_current_key(), self.number.value(), self.total.value()


def chained(job: Any) -> Any:
    """Step 2 is keyed by another column of what step 1 gives out."""
    first = job.key_by(rows_of(job), "account").process(
        CountByShop(), "shop string, at timestamp, number bigint, total bigint", uid="by-account", event_time="at"
    )
    second = job.key_by(first.where("number > 0"), "shop").process(Volume(), COUNTED, uid="by-shop", event_time="at")
    return written(job, second)


class VolumeWithTimers(Volume):
    """Volume, with a timer at each row's own time; a timer's row counts the timers that fire for its key and time."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(ctx.timestamp() or 0)
        yield from super().process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield "timer", 1, timestamp


def available_now(job: Any) -> Any:
    """Two steps and timers, in a query that processes what there is and ends; foreachBatch notes the numbers of its batches."""
    out = Path(job.args[1])

    def sink(df: Any, batch: int) -> None:
        out.mkdir(exist_ok=True)
        (out / f"{batch:04d}.json").write_text(json.dumps([list(row) for row in df.collect()]))

    first = job.key_by(rows_of(job), "account").process(
        CountByShop(), "shop string, at timestamp, number bigint, total bigint", uid="by-account", event_time="at"
    )
    second = job.key_by(first, "shop").process(VolumeWithTimers(), COUNTED, uid="by-shop", event_time="at")
    return second.writeStream.outputMode("append").foreachBatch(sink).trigger(availableNow=True)
