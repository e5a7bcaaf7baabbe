"""The job of `large_state.py`: keeps bytes per key that do not compress and follow from the row that wrote them last."""

from __future__ import annotations

import hashlib
from typing import Any

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

UID = "keep"
STATE = "kept"


def value_of(number: int, size_bytes: int) -> bytes:
    """Return what the row with this number writes."""
    return hashlib.shake_128(number.to_bytes(8, "big")).digest(size_bytes)


class Keep(KeyedProcessFunction):
    """Keeps ``value_bytes`` bytes per key."""

    def __init__(self, value_bytes: int) -> None:
        self._value_bytes = value_bytes

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self.kept = runtime_context.get_state(ValueStateDescriptor(STATE, Types.PRIMITIVE_ARRAY(Types.BYTE())))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Replace the value; nothing is emitted."""
        self.kept.update(value_of(value.number, self._value_bytes))
        return ()


def pipeline(job: Any) -> Any:
    """The job of ``statefulspark run``."""
    events = job.spark.readStream.schema("key bigint, number bigint").option("maxFilesPerTrigger", 1).parquet(job.args[0])
    return job.key_by(events, "key").process(Keep(int(job.args[1])), "key bigint", uid=UID).writeStream.format("noop")
