"""KeyedFunctionRunner: runs a user's function over one batch of one slot.

Order within a batch: due timers, then rows, then timers that became due. Everything that orders or times a call (hash,
event time, watermark, processing time) is fixed by the batch, so a retry gives the same output.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from statefulspark.errors import StatefulSparkError, UserFunctionError
from statefulspark.process.api.contexts import (
    MIN_WATERMARK_MS,
    ElementContext,
    SlotRuntimeContext,
    SlotTimerService,
    TimerContext,
)
from statefulspark.process.api.metrics import MetricGroup
from statefulspark.process.output.buffer import OutputBuffer
from statefulspark.process.output.side_outputs import TaggedOutputBuffer
from statefulspark.process.rows.columns import event_time_ms, max_event_time_ms, python_values
from statefulspark.process.rows.keyruns import KeyRuns
from statefulspark.process.rows.latest_by_value import LatestByValue
from statefulspark.process.rows.reserved_columns import KEY_HASH
from statefulspark.process.rows.rows import InputRow, row_class, rows_of
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.process.rows.value_times import NO_VALUES, InputValueTimes
from statefulspark.process.runner.broadcast_summary import BroadcastSummary
from statefulspark.process.runner.callbacks import Callback, callback
from statefulspark.process.runner.checkpointed_functions import StateCalls
from statefulspark.process.runner.failures import USER_ERRORS, error_of_step, timestamp_hint, user_function_error
from statefulspark.process.runner.key_rows import KeyedRows, KeyRowsFunction
from statefulspark.process.runner.timer_firing import TimerFiring
from statefulspark.process.sorting.order import BatchOrder

if TYPE_CHECKING:
    from statefulspark.state.api.functions import Function
    from statefulspark.state.backend import KeyedStateBackend
    from statefulspark.state.operator.backend import OperatorStateBackend

__all__ = ["KeyedFunctionRunner", "StepSpec"]


class KeyedFunctionRunner:
    """One keyed step in one slot; used by one thread.

    Args:
        step: the step.
        backend: its keyed state in this slot. The caller begins, finishes and aborts batches on it.
        slot: number of the slot, 0..parallelism-1.
        parallelism: number of slots.
        job_name: for the function's information.
        output_rows: most rows per record batch given back.
        output_bytes: about the most bytes per record batch given back; one row may be larger.
        attempt: how often the step was started before in this slot.
        job_parameters: what ``RuntimeContext.get_job_parameter`` answers from.
        operator_state: its operator state in this slot, which the caller begins, finishes and aborts batches on too.
    """

    _chunk_rows: ClassVar[int] = 4_096
    """Rows that are processed together; see `BatchOrder`."""
    _runtime_context_class: ClassVar[type[SlotRuntimeContext]] = SlotRuntimeContext

    def __init__(  # noqa: PLR0913  what a step needs of its slot, by name
        self,
        step: StepSpec,
        backend: KeyedStateBackend,
        *,
        operator_state: OperatorStateBackend,
        slot: int,
        parallelism: int,
        job_name: str,
        output_rows: int = 10_000,
        output_bytes: int = 8 << 20,
        attempt: int = 0,
        job_parameters: Mapping[str, str] | None = None,
    ) -> None:
        self.step = step
        self.job_name = job_name
        self.metrics = MetricGroup()
        self.max_event_time_ms: int | None = None
        """Latest event time of the rows of the last run, in milliseconds; None when there was none. Of two inputs that of the first."""
        self.second_max_event_time_ms: int | None = None
        """The same of the second input."""
        self._by_value: list[LatestByValue] = []
        self.rows_in = 0
        """Rows of the last run, without tick rows."""
        self.rows_out = 0
        self._backend = backend
        self._key_group: int | None = None
        self._function = step.function
        self._output = _output_buffer(step, output_rows, output_bytes)
        self._row = row_class(tuple(step.input_schema.names))
        key_columns, self._event_time = self._order_columns(step)
        self._timer_service = SlotTimerService(backend.timers, uid=step.uid, event_time=step.has_event_time)
        self._element_context, self._timer_context = self._contexts(self._timer_service)
        self._timers = TimerFiring(step, backend, self._timer_service, add=self._output.add, flush=self._flush, context=self._timer_context)
        self._key_runs = KeyRuns(key_columns, step.max_parallelism, backend.key_codec.encode)
        self._runtime_context = self._runtime_context_class(
            backend,
            uid=step.uid,
            slot=slot,
            parallelism=parallelism,
            max_parallelism=step.max_parallelism,
            attempt=attempt,
            job_parameters=dict(job_parameters or {}),
            metrics=self.metrics,
        )
        self._state_calls = StateCalls(
            self._function, uid=step.uid, operator_state=operator_state, keyed_state=self._runtime_context, backend=backend
        )

    def _contexts(self, timer_service: SlotTimerService) -> tuple[ElementContext, TimerContext]:
        """Return the contexts that the function gets with rows and with timers."""
        return ElementContext(timer_service), TimerContext(timer_service)

    @property
    def broadcast(self) -> BroadcastSummary | None:
        """The rows of the broadcast stream in the last run; None for a step without one."""
        return None

    @property
    def event_times_by_value(self) -> InputValueTimes:
        """Latest event times of the rows of the last run by value of ``watermark_by``, of each input."""
        first, second = [*(each.times for each in self._by_value), *NO_VALUES][:2]
        return first, second

    @property
    def timers_fired(self) -> int:
        """Timers of the last run that have fired."""
        return self._timers.fired

    def open(self) -> None:
        """Initialize the state of the user's function, and open it.

        Raises:
            UserFunctionError: it raised.
        """
        self._state_calls.initialize()
        function: Function = self._function
        self._call(lambda: function.open(self._runtime_context))

    def close(self) -> None:
        """Close the user's function.

        Raises:
            UserFunctionError: it raised.
        """
        self._call(self._function.close)

    def snapshot(self, checkpoint_id: int, timestamp_ms: int) -> None:
        """Let the user's function write its operator state, without a current key.

        Args:
            checkpoint_id: number of the batch that the snapshot includes, -1 before the first.
            timestamp_ms: processing time of that batch in milliseconds since the epoch.

        Raises:
            UserFunctionError: it raised.
        """
        self._backend.clear_current_key()
        self._state_calls.snapshot(checkpoint_id, timestamp_ms)

    def run(
        self,
        batches: Iterator[pa.RecordBatch],
        *,
        watermark_ms: int | None,
        processing_time_ms: int,
        sort_bytes: int,
        spill_directory: Path,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Process one batch; the output is produced as it is asked for.

        Args:
            batches: the rows: ``__kh`` (int64, null for tick rows and rows of a broadcast stream), ``__src`` (int32), then the columns of the
                input schema, or for two inputs the structs ``__1`` and ``__2``.
            watermark_ms: the batch's watermark in milliseconds since the epoch; None when there is none yet.
            processing_time_ms: the batch's processing time in milliseconds since the epoch.
            sort_bytes: memory for sorting the rows, in bytes; more rows are spilled.
            spill_directory: local directory for spilled rows.

        Yields:
            Record batches of the step's result schema, 1 to ``output_rows`` rows each, of about ``output_bytes`` at most.

        Raises:
            UserFunctionError: the function raised. After this and any other error the caller aborts the batch.
            InvalidInputError: the function's output or a timer does not fit; names the field and the remedy.
            UnavailableError: the local disk refused the spilled rows.
        """
        self._timer_service.processing_time_ms = processing_time_ms
        self._timer_service.watermark_ms = MIN_WATERMARK_MS if watermark_ms is None else watermark_ms
        try:
            yield from self._run(batches, sort_bytes, spill_directory)
        except StatefulSparkError as error:
            raise error_of_step(error, self.step.uid) from error.__cause__

    def _run(self, batches: Iterator[pa.RecordBatch], sort_bytes: int, spill_directory: Path) -> Iterator[pa.RecordBatch]:
        self._begin(sort_bytes)
        yield from self._timers.fire_due()
        order = BatchOrder(event_time=self._event_time, sort_bytes=sort_bytes, spill_directory=spill_directory, rows_max=self._chunk_rows)
        chunks = self._chunks(order.sorted(self._counted(batches)))
        first = next(chunks, None)  # takes all rows in
        yield from self._before_rows()
        if first is not None:
            yield from self._process_chunk(first)
        first = None
        for chunk in chunks:
            yield from self._process_chunk(chunk)
        yield from self._timers.fire_due()
        yield from self._rest()

    def _chunks(self, ordered: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the sorted rows as they are processed."""
        return ordered

    def _rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the output that fills no record batch."""
        while self._output:
            yield self._flush()

    def _begin(self, sort_bytes: int) -> None:  # noqa: ARG002  for those who keep rows
        """Forget what the last run has left."""
        self.max_event_time_ms = self.second_max_event_time_ms = None
        self._by_value = [LatestByValue(each.watermark_by) for each in self.step.inputs]
        self.rows_in = self.rows_out = self._timers.fired = 0
        self._output.clear()

    def _before_rows(self) -> Iterator[pa.RecordBatch]:
        """Process what comes before the first keyed row, once all rows of the batch have arrived."""
        return iter(())

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Drop tick rows, count the others and track their latest event time."""
        for batch in batches:
            key_hash = batch.column(KEY_HASH)
            rows = batch.filter(key_hash.is_valid()) if key_hash.null_count else batch
            if not rows.num_rows:
                continue
            self.rows_in += rows.num_rows
            yield self._arrived(rows)

    @staticmethod
    def _order_columns(step: StepSpec) -> tuple[tuple[str, ...], str | None]:
        """Return the names of the key and event-time columns in the result of `_arrived`."""
        return step.key_columns, step.event_time

    def _arrived(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Track the latest event time, and return the rows as they are sorted."""
        if self._event_time is not None:
            self.max_event_time_ms = later(self.max_event_time_ms, max_event_time_ms(rows.column(self._event_time)))
            if self.step.watermark_by:
                self._by_value[0].see([rows.column(name) for name in self.step.watermark_by], rows.column(self._event_time))
        return rows

    def _elements(self, chunk: pa.RecordBatch) -> tuple[Iterable[InputRow], Iterable[Callback]]:
        """Return the rows of a sorted chunk as the function gets them, and the method that each of them goes to."""
        columns = [python_values(chunk.column(name), name) for name in self._row._fields]
        return rows_of(self._row, columns), repeat(callback(self.step, "process_element"))

    def _process_chunk(self, chunk: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if isinstance(self._function, KeyRowsFunction):
            return self._process_keys(chunk, self._function)
        return self._process_rows(chunk)

    def _process_rows(self, chunk: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Give the function row by row."""
        rows, methods = self._elements(chunk)
        times: Iterable[int | None] = repeat(None) if self._event_time is None else event_time_ms(chunk.column(self._event_time))
        runs = self._key_runs.of(chunk)
        idents = self._backend.idents.of_all(runs.places)
        run_number = prefetched = 0
        # Local names: this loop is what a row costs.
        context, set_current_ident = self._element_context, self._backend.set_current_ident
        is_full = self._output.add
        key_group = None
        try:
            for row, process_element, time, run in zip(rows, methods, times, runs.per_row(), strict=False):
                if run is not None:
                    if run_number == prefetched:
                        prefetched += self._backend.prefetch(idents[prefetched:])
                    key_group, key = run
                    set_current_ident(idents[run_number], key)
                    run_number += 1
                    context.key = key
                context.time = time
                produced = process_element(row, context)
                if produced is not None:
                    for each in produced:
                        if is_full(each):
                            yield self._flush()
        except StatefulSparkError:
            raise
        except USER_ERRORS as error:
            raise self._error(error, key_group) from error

    def _process_keys(self, chunk: pa.RecordBatch, function: KeyRowsFunction) -> Iterator[pa.RecordBatch]:
        """Give the function all rows of a key at once."""
        is_full = self._output.add
        self._key_group = None
        try:
            for each in function.process_keys(self._keyed_rows(chunk), self._element_context):
                if is_full(each):
                    yield self._flush()
        except StatefulSparkError:
            raise
        except USER_ERRORS as error:
            raise self._error(error, self._key_group) from error

    def _keyed_rows(self, chunk: pa.RecordBatch) -> Iterator[KeyedRows]:
        """Yield the rows of some keys at a time."""
        rows = list(self._elements(chunk)[0])
        times = [None] * len(rows) if self._event_time is None else event_time_ms(chunk.column(self._event_time))
        runs = self._key_runs.of(chunk)
        idents = self._backend.idents.of_all(runs.places)
        firsts = [*runs.first_rows, runs.rows]
        context, backend = self._element_context, self._backend
        done = 0

        def select(number: int) -> None:
            self._key_group, key = runs.keys[done + number]
            backend.set_current_ident(idents[done + number], key)
            context.key, context.time = key, times[firsts[done + number]]

        while done < len(idents):
            end = min(len(idents), done + backend.keys_per_check)
            yield KeyedRows(rows, times, idents[done:end], firsts[done : end + 1], runs.distinct, backend.prefetch, select)
            backend.keys_passed(end - done)
            done = end

    def _error(self, error: BaseException, key_group: int | None) -> UserFunctionError:
        """Return the error of a batch whose function raised for a row."""
        time = self._element_context.time
        hint = timestamp_hint(error, event_time=self.step.event_time, timestamp_ms=time, inputs=len(self.step.delays_ms))
        return user_function_error(error, uid=self.step.uid, key_group=key_group, hint=hint)

    def _flush(self) -> pa.RecordBatch:
        batch = self._output.take()
        self.rows_out += batch.num_rows
        return batch

    def _call(self, action: Callable[[], object]) -> None:
        try:
            action()
        except StatefulSparkError as error:
            raise error_of_step(error, self.step.uid) from error.__cause__
        except USER_ERRORS as error:
            raise user_function_error(error, uid=self.step.uid, key_group=None) from error


def later(one: int | None, other: int | None) -> int | None:
    """Return the later of two event times, of which each may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _output_buffer(step: StepSpec, rows: int, bytes_max: int) -> OutputBuffer | TaggedOutputBuffer:
    """Return the buffer for the rows of the step; only steps with side outputs look for tags."""
    if step.side_outputs:
        return TaggedOutputBuffer(step.uid, step.output_schema, step.side_outputs, rows_max=rows, bytes_max=bytes_max)
    return OutputBuffer(step.output_schema, f"the step {step.uid!r}", rows_max=rows, bytes_max=bytes_max)
