"""The job of `count_per_key.py`, as a user would write it."""

from __future__ import annotations

from typing import Any

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

INPUT = "key string, at timestamp, amount bigint"
OUTPUT = "key string, count bigint"


class Count(KeyedProcessFunction):
    """Counts the rows of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """One more."""
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value.key, count


def pipeline(job: Any) -> Any:
    """The job of ``statefulspark run``."""
    events = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(job.args[0])
    counts = job.key_by(events, "key").process(Count(), OUTPUT, uid="count", event_time="at")
    return counts.writeStream.format("noop")
