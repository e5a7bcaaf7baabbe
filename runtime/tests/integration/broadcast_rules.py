"""A pipeline with a broadcast stream: orders, and the discounts of the moment."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from statefulspark import KeyedBroadcastProcessFunction, MapStateDescriptor, RuntimeContext, Types, ValueStateDescriptor

DISCOUNTS = MapStateDescriptor("discounts", Types.STRING(), Types.LONG())
COUNT = ValueStateDescriptor("count", Types.LONG())
RESULT = "shop string, number bigint, amount bigint, discounts string"


class Discount(KeyedBroadcastProcessFunction):
    """Numbers the orders of a shop and adds all discounts. The discount ``-1`` kills one slot once; ``restart`` counts from 0 again."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.kills = runtime_context.get_index_of_this_subtask() == 0
        self.marker = Path(runtime_context.get_job_parameter("marker", "/nonexistent/marker"))

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        discounts = ",".join(f"{name}={n}" for name, n in sorted(ctx.get_broadcast_state(DISCOUNTS).items()))
        yield value.shop, number, value.amount, discounts

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        discounts = ctx.get_broadcast_state(DISCOUNTS)
        if value.name == "restart":
            ctx.apply_to_keyed_state(COUNT, lambda _, count: count.clear())
        elif value.n is None:
            discounts.remove(value.name)
        else:
            discounts.put(value.name, value.n)
        if value.n == -1 and self.kills and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def discounted(job: Any) -> Any:
    """One file of each source at a time."""
    files = job.spark.readStream.option("maxFilesPerTrigger", 1)
    orders = files.schema("shop string, at timestamp, amount bigint").json(f"{job.args[0]}/orders")
    discounts = files.schema("at timestamp, name string, n bigint").json(f"{job.args[0]}/discounts")
    connected = job.key_by(orders, "shop").connect(job.broadcast(discounts, DISCOUNTS))
    result = connected.process(Discount(), RESULT, uid="discount", event_time="at", broadcast_event_time="at")
    return result.writeStream.format("parquet").option("path", job.args[1])
