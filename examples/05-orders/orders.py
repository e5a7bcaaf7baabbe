"""An order's states, with a side output for events that its state does not allow."""

from collections.abc import Callable
from typing import Any

from statefulspark import KeyedProcessFunction, OutputTag, RuntimeContext, Types, ValueStateDescriptor

DAY_MS = 24 * 60 * 60 * 1000
NEXT = {
    None: {"created"},
    "created": {"paid", "canceled"},
    "paid": {"shipped", "refunded"},
    "shipped": {"delivered", "returned"},
    "delivered": {"returned"},
    "returned": {"refunded"},
}
ILLEGAL = OutputTag("illegal", "order STRING, at TIMESTAMP, was STRING, event STRING")


class Orders(KeyedProcessFunction):
    """Follow an order from state to state. An order that is not paid within a day expires."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("state", Types.STRING()))
        self.expiry_ms = runtime_context.get_state(ValueStateDescriptor("expiry_ms", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        # The watermark may not have reached the expiry yet.
        if (expiry_ms := self.expiry_ms.value()) is not None and ctx.timestamp() >= expiry_ms:
            ctx.timer_service().delete_event_time_timer(expiry_ms)
            yield from self.on_timer(expiry_ms, ctx)
        was = self.state.value()
        if value.event not in NEXT.get(was, ()):
            yield ILLEGAL, (value.order, value.at, was, value.event)
            return
        self.state.update(value.event)
        yield value.order, ctx.timestamp(), was, value.event
        if was == "created":
            ctx.timer_service().delete_event_time_timer(expiry_ms)
            self.expiry_ms.clear()
        elif value.event == "created":
            self.expiry_ms.update(ctx.timestamp() + DAY_MS)
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + DAY_MS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        self.expiry_ms.clear()
        self.state.update("expired")
        yield ctx.get_current_key(), timestamp, "created", "expired"


def written_to(folder: str) -> Callable[[Any, int], None]:
    """Write each batch to a folder of its own, so that a batch that runs again replaces what it has written."""
    return lambda df, batch_id: df.write.mode("overwrite").parquet(f"{folder}/batch={batch_id}")


def pipeline(job: Any) -> Any:
    """Event files in, two folders of Parquet files out."""
    events = job.spark.readStream.schema("order STRING, at TIMESTAMP, event STRING").json("examples/05-orders/events")
    schema = "order STRING, at_ms BIGINT, was STRING, became STRING"
    orders = job.key_by(events, "order").process(
        Orders(), schema, uid="orders", event_time="at", watermark="1 hour", side_outputs=[ILLEGAL]
    )
    return job.outputs(orders, main=written_to("out/orders/transitions"), illegal=written_to("out/orders/illegal"))
