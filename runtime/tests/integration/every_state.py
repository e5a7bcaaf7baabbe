"""The pipeline of the tests of state backends: every kind of state in one function."""

from __future__ import annotations

import json
from typing import Any

from statefulspark import (
    AggregateFunction,
    AggregatingStateDescriptor,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)

INPUT = "account string, at timestamp, amount bigint, shop string"


def rows_of(job: Any) -> Any:
    """The source: one file per batch."""
    return job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(job.args[0])


def written(job: Any, df: Any) -> Any:
    """The sink."""
    return df.writeStream.format("parquet").option("path", job.args[1]).outputMode("append")


class Average(AggregateFunction[int, tuple[int, int], float]):
    """Mean, kept as (number, sum)."""

    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[1] / accumulator[0]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class AllStates(KeyedProcessFunction):
    """Uses every kind of state, and one with time to live."""

    def open(self, runtime_context: RuntimeContext) -> None:
        seen = ValueStateDescriptor("seen", Types.LONG())
        seen.enable_time_to_live(StateTtlConfig.new_builder(Time.minutes(30)).build())
        self.seen = runtime_context.get_state(seen)
        self.amounts = runtime_context.get_list_state(ListStateDescriptor("amounts", Types.LONG()))
        self.shops = runtime_context.get_map_state(MapStateDescriptor("shops", Types.STRING(), Types.LONG()))
        self.largest = runtime_context.get_reducing_state(ReducingStateDescriptor("largest", max, Types.LONG()))
        mean = AggregatingStateDescriptor("mean", Average(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        self.mean = runtime_context.get_aggregating_state(mean)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.seen.update((self.seen.value() or 0) + 1)
        self.amounts.add(value.amount)
        self.shops.put(value.shop, (self.shops.get(value.shop) or 0) + 1)
        self.largest.add(value.amount)
        self.mean.add(value.amount)
        state = {
            "seen": self.seen.value(),
            "amounts": list(self.amounts.get()),
            "shops": dict(sorted(self.shops.items())),
            "largest": self.largest.get(),
            "mean": self.mean.get(),
        }
        yield ctx.get_current_key(), json.dumps(state)


def all_states(job: Any) -> Any:
    """Every kind of state."""
    return written(job, job.key_by(rows_of(job), "account").process(AllStates(), "key string, state string", uid="all", event_time="at"))
