"""A slot for one keyed step without Spark: the real function runner on the real state backend and a real store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statefulspark.keygroups import KeyGroupRange
from statefulspark.process.api.functions import KeyedProcessFunction
from statefulspark.process.rows.keytypes import key_type_infos
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.process.runner.function_runner import KeyedFunctionRunner
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.operator.backend import OperatorStateBackend, StepOperatorState
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.base import Change
from statefulspark.state.store.heap_store import HeapStore

INPUT = pa.schema([("user", pa.string()), ("at", pa.int64()), ("amount", pa.int64())])


class Slot:
    """Runs batches of one function; rows are (key hash, source, user, at, amount)."""

    def __init__(
        self,
        function: KeyedProcessFunction,
        output: pa.Schema,
        directory: Path,
        *,
        event_time: str | None = "at",
        input_schema: pa.Schema = INPUT,
        key_columns: tuple[str, ...] = ("user",),
        output_rows: int = 10_000,
        sort_bytes: int = 1 << 20,
        budget: BatchBudget = BatchBudget(cache_bytes=1 << 20, dirty_bytes=1 << 20),  # noqa: B008  frozen
    ) -> None:
        self.step = StepSpec(
            uid="turnaround",
            function=function,
            input_schema=input_schema,
            output_schema=output,
            key_columns=key_columns,
            event_time=event_time,
            watermark_delay_ms=0,
            max_parallelism=16,
        )
        self.directory = directory
        self.sort_bytes = sort_bytes
        self.store = HeapStore()
        self.backend = KeyedStateBackend(
            self.store,
            StateRegistry(),
            uid="turnaround",
            key_codec=KeyCodec(key_type_infos(self.step)),
            key_groups=KeyGroupRange(0, 15),
            budget=budget,
            spill_directory=directory / "changes",
        )
        self.runner = KeyedFunctionRunner(
            self.step,
            self.backend,
            operator_state=OperatorStateBackend(StateRegistry(), uid="turnaround", slot=1, parallelism=2, start=StepOperatorState()),
            slot=1,
            parallelism=2,
            job_name="job",
            output_rows=output_rows,
            job_parameters={"limit": "7"},
        )
        self.changes: list[Change] = []
        self.runner.open()

    def batches(self, rows: Iterable[tuple[Any, ...]], size: int = 3) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([("__kh", pa.int64()), ("__src", pa.int32()), *self.step.input_schema])
        records = list(rows)
        for first in range(0, len(records), size):
            columns = zip(*records[first : first + size], strict=True)
            yield pa.record_batch([pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema)

    def start(self, rows: Iterable[tuple[Any, ...]], *, watermark: int | None = None, now: int = 0) -> Iterator[pa.RecordBatch]:
        """Run without beginning or finishing the batch."""
        return self.runner.run(
            self.batches(rows), watermark_ms=watermark, processing_time_ms=now, sort_bytes=self.sort_bytes, spill_directory=self.directory
        )

    def run(self, rows: Iterable[tuple[Any, ...]], *, batch: int | None = None, watermark: int | None = None, now: int = 0) -> list[Any]:
        """Run one whole batch (the next one by default) and return the output as tuples."""
        self.backend.begin_batch(self.backend.batch + 1 if batch is None else batch, processing_time_ms=now)
        try:
            results = list(self.start(rows, watermark=watermark, now=now))
        except Exception:
            self.backend.abort_batch()
            raise
        self.changes = []
        self.backend.finish_batch(self.changes.extend)
        return [tuple(row.values()) for result in results for row in result.to_pylist()]


@pytest.fixture
def make_slot(tmp_path: Path) -> Callable[..., Slot]:
    """Build a slot in a directory of the test's own."""

    def make(function: KeyedProcessFunction, output: pa.Schema, **options: Any) -> Slot:
        return Slot(function, output, tmp_path, **options)

    return make


@pytest.fixture(scope="session")
def slot_class() -> type[Slot]:
    """For property tests, which make many slots in directories of their own."""
    return Slot
