"""Measurements that a queue delivers at least once, each passed on exactly once."""

from collections.abc import Iterable
from typing import Any

from statefulspark import KeyedProcessFunction, RuntimeContext, Time, Types, ValueStateDescriptor

REMEMBERED = Time.hours(1)
"""How long an id is remembered, in event time. The queue delivers again within minutes, so state stays as small as the traffic of an hour."""


class FirstDelivery(KeyedProcessFunction):
    """Passes on the first delivery of an id within an hour of event time, also if a day of history is read within a minute."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.first_ms = runtime_context.get_state(ValueStateDescriptor("first_ms", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        first_ms, now_ms = self.first_ms.value(), ctx.timestamp() or 0
        if first_ms is not None and abs(now_ms - first_ms) < REMEMBERED.to_milliseconds():
            return
        self.first_ms.update(now_ms)
        ctx.timer_service().register_event_time_timer(now_ms + REMEMBERED.to_milliseconds())
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        if self.first_ms.value() == timestamp - REMEMBERED.to_milliseconds():
            self.first_ms.clear()


def pipeline(job: Any) -> Any:
    """Deliveries in, measurements out."""
    schema = "id STRING, at TIMESTAMP, device STRING, value DOUBLE"
    deliveries = job.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json("examples/07-deduplication/deliveries")
    first = job.key_by(deliveries, "id").process(FirstDelivery(), schema, uid="first-delivery", event_time="at", watermark="15 minutes")
    return first.writeStream.format("parquet").option("path", "out/deduplication")
