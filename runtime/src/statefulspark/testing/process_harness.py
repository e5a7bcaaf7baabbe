"""ProcessHarness: what the harnesses of functions with one input and with two have in common."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import cloudpickle
import pyarrow as pa

from statefulspark.errors import ClosedError, InvalidInputError, NotRestorableError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.process.api.co_functions import StepFunction
from statefulspark.process.api.output_tag import MAIN, OutputTag
from statefulspark.process.output.side_outputs import untagged
from statefulspark.process.rows.columns import python_values
from statefulspark.process.rows.keytypes import key_type_infos
from statefulspark.process.rows.rows import InputRow, row_class, rows_of
from statefulspark.process.rows.step_spec import InputSpec, StepSpec
from statefulspark.process.runner.function_runner import KeyedFunctionRunner
from statefulspark.process.runner.lifecycle import FunctionLifecycle
from statefulspark.process.runner.two_inputs import runner_class
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import StateInfo, key_group_range_bounds
from statefulspark.state.operator.backend import OperatorStateBackend, StepOperatorState
from statefulspark.state.operator.entries import OperatorEntry, is_operator_state, lists_of
from statefulspark.state.registry import StateRegistry
from statefulspark.state.row import Row, field_names
from statefulspark.state.store.base import Change
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.testing.inputs import ExchangeRows

__all__ = ["HarnessSnapshot", "ProcessHarness", "stamped"]

_BUDGET = BatchBudget(cache_bytes=16 << 20, dirty_bytes=16 << 20)
_SORT_BYTES = 16 << 20
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # event times have no zone


@dataclass(frozen=True, slots=True)
class HarnessSnapshot:
    """State and clocks of a harness between two elements. Compare two of them to compare states."""

    states: tuple[StateInfo, ...]
    entries: tuple[tuple[bytes, bytes], ...]
    watermark_ms: int | None
    processing_time_ms: int
    operator_state: tuple[OperatorEntry, ...] = ()
    input_watermarks_ms: tuple[int | None, ...] = ()
    """Of a harness with two inputs, the watermark of each."""


class _Running(NamedTuple):
    function: FunctionLifecycle
    backend: KeyedStateBackend
    operator: OperatorStateBackend
    directory: tempfile.TemporaryDirectory[str]


class _Batch(NamedTuple):
    rows: list[pa.RecordBatch]
    watermark_ms: int | None
    processing_time_ms: int
    output_before: dict[str, int]
    """Number of rows before the batch, by output."""


class ProcessHarness:
    """Drives one function like a slot does, on the real function runner and state backend: each batch is finished when a call returns.

    Args:
        step: The function and its inputs.
        job_parameters: What ``RuntimeContext.get_job_parameter`` answers from.
    """

    def __init__(self, step: StepSpec, job_parameters: Mapping[str, str] | None) -> None:
        self._step = step
        self._pickled = _pickled(step.function)
        self._copies = 0
        self._job_parameters = dict(job_parameters or {})
        self._last: _Batch | None = None
        self._rows = ExchangeRows(step)
        self._codec = KeyCodec(key_type_infos(step))
        self._outputs: dict[str, list[InputRow]] = {MAIN: [], **{output.tag.tag_id: [] for output in step.side_outputs}}
        self._state_ids = StateRegistry()
        self._operator_state = StepOperatorState()
        self._store = HeapStore()
        self._watermark_ms: int | None = None
        self._processing_time_ms = 0
        self._batch = -1
        self._running: _Running | None = None

    def restore(self, snapshot: HarnessSnapshot, *, allow_non_restored_state: bool = False) -> None:
        """Start from a snapshot of this or another harness; call it before ``open``.

        Args:
            snapshot: State and clocks to start from.
            allow_non_restored_state: As in a job's manifest; without it ``open`` refuses a function that seems to have renamed a state.
        """
        if self._running is not None:
            raise InvalidInputError("the harness is open", field="restore", remedy="Restore into a new harness, before open()")
        self._state_ids = StateRegistry(
            snapshot.states, allow_non_restored=allow_non_restored_state, reached_ms=snapshot.processing_time_ms
        )
        self._store.write(snapshot.entries)
        lists = lists_of(snapshot.operator_state, 0, where="snapshot")
        maps = [entry for entry in snapshot.operator_state if not entry.whole]
        broadcast = {entry.state_id: {key: value for key, value in entry.items if value is not None} for entry in maps}
        states = tuple(filter(is_operator_state, snapshot.states))
        self._operator_state = StepOperatorState(lists, states, restored=True, broadcast=broadcast)
        self._watermark_ms = snapshot.watermark_ms
        self._processing_time_ms = snapshot.processing_time_ms

    def open(self) -> None:
        """Open the function. ``with`` does it too.

        Raises:
            NotRestorableError: The function does not fit the restored state.
        """
        directory = tempfile.TemporaryDirectory(prefix="statefulspark-harness-")
        backend = KeyedStateBackend(
            self._store,
            self._state_ids,
            uid=self._step.uid,
            key_codec=self._codec,
            key_groups=KeyGroupRange(0, self._step.max_parallelism - 1),
            budget=_BUDGET,
            spill_directory=Path(directory.name) / "changes",
        )
        operator = OperatorStateBackend(self._state_ids, uid=self._step.uid, slot=0, parallelism=1, start=self._operator_state)
        try:
            function = FunctionLifecycle(lambda: self._fresh_runner(backend, operator))
            self._running = _Running(function, backend, operator, directory)
            # As a slot does when operator state was distributed, so that a retry finds what the function had made of it.
            function.runner.snapshot(self._batch, self._processing_time_ms)
            operator.report()
        except BaseException:
            self._running = None
            directory.cleanup()
            raise
        try:
            self._state_ids.all_opened()
        except NotRestorableError:
            self.close()
            raise

    def close(self) -> None:
        """Close the function. ``with`` does it too."""
        running, self._running = self._running, None
        if running is not None:
            running.directory.cleanup()
            running.function.close()

    def __enter__(self) -> Self:
        if self._running is None:
            self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def set_processing_time(self, timestamp: int) -> None:
        """Move the processing time to ``timestamp`` (milliseconds since the epoch) and fire the timers that are due."""
        self._processing_time_ms = timestamp
        self._run([])

    def retry(self) -> None:
        """Repeat the last batch as a retry: what it changed and emitted is undone, and a fresh copy of the function runs it again.

        A function whose results depend only on its input, its state and its timers emits the same rows as before.

        Raises:
            InvalidInputError: There was no batch since ``open`` or `snapshot`, or the last one failed.
        """
        running, last = self._opened(), self._last
        if last is None:
            raise InvalidInputError("there is no batch to repeat", field="retry", remedy="Call it right after a call that succeeded")
        for name, rows in self._outputs.items():
            del rows[last.output_before[name] :]
        self._batch -= 1
        running.function.undone()
        self._run_batch(last)

    def get_output(self) -> list[Any]:
        """Return all rows of the main output so far, in the order in which they came; they compare equal to tuples."""
        return list(self._outputs[MAIN])

    def get_side_output(self, tag: OutputTag) -> list[Any]:
        """Return all rows of a side output so far, in the order in which they came.

        Raises:
            InvalidInputError: The harness was made without this tag.
        """
        if tag not in [output.tag for output in self._step.side_outputs]:
            raise InvalidInputError(
                f"the harness has no side output {tag.tag_id!r}", field="tag", remedy="Pass the tag to the harness: side_outputs=[...]"
            )
        return list(self._outputs[tag.tag_id])

    def clear_output(self) -> None:
        """Forget the rows of all outputs so far."""
        for rows in self._outputs.values():
            rows.clear()

    def snapshot(self) -> HarnessSnapshot:
        """Return state and clocks as they are now. What is in a snapshot is committed: `retry` cannot undo it."""
        running = self._opened()
        running.backend.apply_pending()
        running.operator.apply_pending()
        self._last = None
        first, end = key_group_range_bounds(0, self._step.max_parallelism - 1)
        return HarnessSnapshot(
            tuple(self._state_ids.states()),
            tuple(self._store.scan(first, end)),
            self._watermark_ms,
            self._processing_time_ms,
            tuple(running.operator.committed()),
        )

    def _process(self, values: Sequence[Any]) -> None:
        """Give the function rows in one batch."""
        self._run([self._rows.batch(values)])

    def _advance(self, watermark: int) -> None:
        """Move the watermark, and fire the event-time timers that are due."""
        if self._watermark_ms is not None and watermark < self._watermark_ms:
            raise InvalidInputError("a watermark never goes back", field="watermark", remedy=f"Give at least {self._watermark_ms}")
        self._watermark_ms = watermark
        self._run([])

    def _run(self, rows: list[pa.RecordBatch]) -> None:
        before = {name: len(output) for name, output in self._outputs.items()}
        self._run_batch(_Batch(rows, self._watermark_ms, self._processing_time_ms, before))

    def _run_batch(self, batch: _Batch) -> None:
        running = self._opened()
        self._last = None
        running.backend.begin_batch(self._batch + 1, processing_time_ms=batch.processing_time_ms)
        running.operator.begin_batch(self._batch + 1)
        try:
            running.function.renew_if_stale()
            results = list(
                running.function.runner.run(
                    iter(batch.rows),
                    watermark_ms=batch.watermark_ms,
                    processing_time_ms=batch.processing_time_ms,
                    sort_bytes=_SORT_BYTES,
                    spill_directory=Path(running.directory.name) / "rows",
                )
            )
            running.function.runner.snapshot(self._batch + 1, batch.processing_time_ms)
            running.operator.changes(whole=False)
            running.backend.finish_batch(_forget)
            running.operator.finish_batch()
        except BaseException:
            running.backend.abort_batch()
            running.operator.abort_batch()
            running.function.undone()
            raise
        self._batch += 1
        self._last = batch
        for result in results:
            name, part = untagged(result) if self._step.side_outputs else (MAIN, result)
            self._outputs[name].extend(rows_of(row_class(tuple(part.schema.names)), [python_values(column) for column in part.columns]))

    def _fresh_runner(self, backend: KeyedStateBackend, operator: OperatorStateBackend) -> KeyedFunctionRunner:
        """Make a runner with the function given at first, with a copy of it later."""
        step = self._step if not self._copies else replace(self._step, function=cloudpickle.loads(self._pickled))
        backend.redeclare()
        operator.redeclare()
        runner = runner_class(step)(
            step,
            backend,
            operator_state=operator,
            slot=0,
            parallelism=1,
            job_name="harness",
            attempt=self._copies,
            job_parameters=self._job_parameters,
        )
        self._copies += 1
        return runner

    def _opened(self) -> _Running:
        if self._running is None:
            raise ClosedError("the harness is not open; use it in a with statement, or call open()")
        return self._running


def stamped(value: Any, timestamp: int, spec: InputSpec) -> Any:
    """Put the event time, in milliseconds since the epoch, into a row of one input.

    Raises:
        InvalidInputError: The input has no event-time column.
    """
    name = spec.event_time
    if name is None:
        raise InvalidInputError("there is no event-time column to put it into", field="timestamp", remedy="Give event_time=<column>")
    names = spec.schema.names
    position = names.index(name)
    kind = spec.schema.field(name).type
    time = timestamp if pa.types.is_int64(kind) else _EPOCH + timedelta(milliseconds=timestamp)
    if isinstance(value, Mapping):
        return {**value, name: time}
    if isinstance(value, Row) and field_names(value) is not None:
        return {**value.as_dict(), name: time}
    values = list(value)
    if len(values) == len(names):
        values[position] = time
    else:
        values.insert(position, time)
    return tuple(values)


def _pickled(function: StepFunction) -> bytes:
    """Return the function as a job sends it to its slots."""
    try:
        return bytes(cloudpickle.dumps(function))
    except Exception as error:
        raise InvalidInputError(
            f"it cannot be sent to the slots of a job: {type(error).__name__}: {error}",
            field="function",
            remedy="Open connections and files in open(), not in __init__ or at module level",
        ) from error


def _forget(changes: Iterable[Change]) -> None:
    """A job makes the changes durable; here reading them is enough."""
    for _ in changes:
        pass
