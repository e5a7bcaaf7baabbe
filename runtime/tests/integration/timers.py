"""The pipelines of the tests of timers and metrics: a timer of each kind per row."""

from __future__ import annotations

import logging
from typing import Any

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

INPUT = "account string, at timestamp, amount bigint, shop string"
TIMED = "key string, kind string, at bigint"


def rows_of(job: Any) -> Any:
    """The source: one file per batch."""
    return job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(job.args[0])


def written(job: Any, df: Any) -> Any:
    """The sink."""
    return df.writeStream.format("parquet").option("path", job.args[1]).outputMode("append")


class Alarm(KeyedProcessFunction):
    """Sets a timer of each kind; ``amount`` is how long the processing-time one takes, in ms."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))
        self.asked = runtime_context.get_metrics_group().add_group("alarms").counter("asked")
        logging.getLogger("alarms").warning("opened")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.asked.inc()
        service, at = ctx.timer_service(), ctx.timestamp() or 0
        self.last.update(at)
        service.register_event_time_timer(at + 1000)
        if value.amount:
            service.register_processing_time_timer(service.current_processing_time() + value.amount)
        yield ctx.get_current_key(), "row", at

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield ctx.get_current_key(), ctx.time_domain().name, timestamp


def alarms(job: Any) -> Any:
    """Timers of both kinds."""
    return written(job, job.key_by(rows_of(job), "account").process(Alarm(), TIMED, uid="alarm", event_time="at", watermark="1 second"))


def alarms_now(job: Any) -> Any:
    """The same, in a query that processes what there is and ends."""
    return alarms(job).trigger(availableNow=True)
