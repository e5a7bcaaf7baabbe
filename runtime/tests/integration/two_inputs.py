"""Pipelines with two keyed inputs: orders and prices, joined by shop as of event time."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from statefulspark import KeyedCoProcessFunction, KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

ORDERS = "shop string, at timestamp, amount bigint"
PRICES = "at timestamp, price bigint, store string"
JOINED = "shop string, number bigint, amount bigint, price bigint"


class Count(KeyedProcessFunction):
    """Numbers the orders of a shop; the first release, without prices."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        yield value.shop, number, value.amount, None


class Join(KeyedCoProcessFunction):
    """Numbers the orders of a shop and adds the latest price. The price ``-1`` kills the slot once. A timer says that a price is a second old."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))
        self.price = runtime_context.get_state(ValueStateDescriptor("price", Types.LONG()))
        self.marker = Path(runtime_context.get_job_parameter("marker", "/nonexistent/marker"))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        yield value.shop, number, value.amount, self.price.value()

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self.price.update(value.price)
        ctx.timer_service().register_event_time_timer((ctx.timestamp() or 0) + 1_000)
        if value.price == -1 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        yield ctx.get_current_key(), 0, timestamp, None


def _orders(job: Any) -> Any:
    return job.spark.readStream.schema(ORDERS).option("maxFilesPerTrigger", 1).json(f"{job.args[0]}/orders")


def _written(job: Any, df: Any) -> Any:
    return df.writeStream.format("parquet").option("path", job.args[1])


def counted(job: Any) -> Any:
    """Orders alone."""
    return _written(job, job.key_by(_orders(job), "shop").process(Count(), JOINED, uid="join", event_time="at"))


def joined(job: Any) -> Any:
    """The same step with a second input."""
    prices = job.spark.readStream.schema(PRICES).option("maxFilesPerTrigger", 1).json(f"{job.args[0]}/prices")
    connected = job.key_by(_orders(job), "shop").connect(job.key_by(prices, "store"))
    return _written(job, connected.process(Join(), JOINED, uid="join", event_time1="at", event_time2="at", watermark2=500))
