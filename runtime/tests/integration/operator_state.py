"""A pipeline whose function keeps operator state: it buffers rows across keys in an attribute and emits them in groups."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from statefulspark import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    ListCheckpointed,
    ListStateDescriptor,
    RuntimeContext,
    Types,
)

INPUT = "account string, at timestamp, amount bigint, shop string"
EMITTED = "account string, amount bigint"
GROUP_SIZE = 7


class Buffer(KeyedProcessFunction, CheckpointedFunction):
    """Emits rows of any accounts seven at a time. The row of amount ``-1`` kills the slot once, after it has been buffered."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("buffered", Types.TUPLE([Types.STRING(), Types.LONG()])))
        self.slots = store.get_union_list_state(ListStateDescriptor("slots", Types.LONG()))
        self.rows = list(self.state.get())
        self.known_slots = set(self.slots.get())

    def open(self, runtime_context: RuntimeContext) -> None:
        self.slot = runtime_context.get_index_of_this_subtask()
        self.marker = Path(runtime_context.get_job_parameter("marker", "/nonexistent/marker"))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.rows)
        self.slots.update([self.slot])

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.rows.append((value.account, value.amount))
        if value.amount == -1 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        while len(self.rows) >= GROUP_SIZE:
            group, self.rows = self.rows[:GROUP_SIZE], self.rows[GROUP_SIZE:]
            yield from group


class Total(KeyedProcessFunction, ListCheckpointed[int]):
    """Emits each row, and counts the rows of its slot in an attribute."""

    total = 0

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[int]:
        assert checkpoint_id == -1 or timestamp > 0
        return [self.total]

    def restore_state(self, state: list[int]) -> None:
        self.total = sum(state)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.total += 1
        yield value.account, value.amount


def _written(job: Any, df: Any) -> Any:
    return df.writeStream.format("parquet").option("path", job.args[1])


def buffered(job: Any) -> Any:
    """Two keyed steps in a row, each with operator state."""
    rows = job.spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(job.args[0])
    counted = job.key_by(rows, "account").process(Total(), EMITTED, uid="total")
    return _written(job, job.key_by(counted, "account").process(Buffer(), EMITTED, uid="buffer"))
