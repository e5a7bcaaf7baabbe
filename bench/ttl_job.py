"""The job of `ttl_throughput.py`, as a user would write it: the first row of each key, for as long as a key is remembered."""

from __future__ import annotations

from typing import Any

from statefulspark import KeyedProcessFunction, RuntimeContext, StateTtlConfig, Time, Types, ValueStateDescriptor

INPUT = "key bigint"
OUTPUT = "key bigint"


class Seen(KeyedProcessFunction):
    """Remembers each key.

    Args:
        lives_for_ms: how long; None for ever.
        cleanup: whether the background cleanup is on.
    """

    def __init__(self, lives_for_ms: int | None, *, cleanup: bool) -> None:
        self.lives_for_ms = lives_for_ms
        self.cleanup = cleanup

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        descriptor = ValueStateDescriptor("seen", Types.LONG())
        if self.lives_for_ms is not None:
            builder = StateTtlConfig.new_builder(Time.milliseconds(self.lives_for_ms))
            descriptor.enable_time_to_live((builder if self.cleanup else builder.disable_cleanup_in_background()).build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Emit a key that comes for the first time."""
        if self.seen.value() is None:
            yield (value.key,)
        self.seen.update(value.key)


def pipeline(job: Any) -> Any:
    """The job of ``statefulspark run``: source, way of cleaning up, time to live in milliseconds."""
    source, way, lives_for = job.args
    events = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(source)
    function = Seen(None if way == "never" else int(lives_for), cleanup=way == "cleanup")
    return job.key_by(events, "key").process(function, OUTPUT, uid="seen").writeStream.format("noop")
