"""BatchFunctionRunner: runs a batch function over one batch of one slot.

Its order is that of row functions: due timers, then rows, then timers that became due. A call has the rows of whole keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from statefulspark.errors import InvalidInputError, StatefulSparkError
from statefulspark.process.api.functions import TimeDomain
from statefulspark.process.batches.contexts import CallContext, CallTimerService
from statefulspark.process.batches.functions import BatchKeyedProcessFunction, Produced
from statefulspark.process.batches.keys import KeyedBatches, key_array, whole_keys
from statefulspark.process.batches.output import ArrowOutput
from statefulspark.process.batches.states import KeyedBatchContext
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.process.runner.callbacks import check_rows
from statefulspark.process.runner.failures import USER_ERRORS, user_function_error
from statefulspark.process.runner.function_runner import KeyedFunctionRunner
from statefulspark.process.runner.timer_firing import TimerFiring

if TYPE_CHECKING:
    from statefulspark.state.backend import KeyedStateBackend

__all__ = ["BatchFunctionRunner"]


class BatchFunctionRunner(KeyedFunctionRunner):
    """A step with a batch function in one slot; used by one thread."""

    _chunk_rows: ClassVar[int] = 32_768
    _runtime_context: KeyedBatchContext
    _runtime_context_class = KeyedBatchContext

    def __init__(
        self, step: StepSpec, backend: KeyedStateBackend, *, output_rows: int = 10_000, output_bytes: int = 8 << 20, **kwargs: Any
    ) -> None:
        super().__init__(step, backend, **kwargs)
        self._arrow = ArrowOutput(step.uid, step.output_schema, rows_max=output_rows, bytes_max=output_bytes)
        self._keyed_batches = KeyedBatches(
            step.input_schema,
            step.key_columns,
            max_parallelism=step.max_parallelism,
            codec=backend.key_codec,
            idents=backend.idents,
            keys_max=backend.keys_per_call,
        )
        service = CallTimerService(
            self._timer_service, backend.timers, self._runtime_context.keys, uid=step.uid, event_time=step.has_event_time
        )
        self._context = CallContext(service, step.output_schema)
        self._timers = BatchTimerFiring(
            step, backend, self._timer_service, add=self._output.add, flush=self._flush, context=self._timer_context, call=self._fired
        )

    @property
    def _batch_function(self) -> BatchKeyedProcessFunction:
        function = self.step.function
        assert isinstance(function, BatchKeyedProcessFunction)  # noqa: S101  `runner_class` chose this class for it
        return function

    def _begin(self, sort_bytes: int) -> None:
        super()._begin(sort_bytes)
        self._arrow.clear()

    def _rest(self) -> Iterator[pa.RecordBatch]:
        while self._arrow:
            yield self._flush()

    def _flush(self) -> pa.RecordBatch:
        batch = self._arrow.take()
        self.rows_out += batch.num_rows
        return batch

    def _chunks(self, ordered: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from whole_keys(ordered)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"one key of the step {self.step.uid!r} has more than 2 GiB of rows in a batch",
                field="process_batch",
                remedy="Read fewer rows per batch, or use a KeyedProcessFunction",
            ) from error

    def _process_chunk(self, chunk: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        function = self._batch_function
        for keyed in self._keyed_batches.of(chunk):
            self._context.rows_from = keyed.offsets
            yield from self._call_function(
                "process_batch", keyed.idents, partial(function.process_batch, keyed.keys, keyed.rows, self._context)
            )

    def _fired(self, domain: TimeDomain, times: list[int], idents: list[bytes]) -> Iterator[pa.RecordBatch]:
        """Give the function timers of distinct keys."""
        self._context.domain = domain
        decode, schema, names = self._backend.key_codec.decode, self.step.input_schema, self.step.key_columns
        keys = [decode(ident[2:]) for ident in idents]
        values = [keys] if len(names) == 1 else list(zip(*keys, strict=True))
        columns = [pa.array(each, schema.field(name).type) for name, each in zip(names, values, strict=True)]
        call = partial(self._batch_function.on_timers, key_array(columns, names), pa.array(times, pa.int64()), self._context)
        yield from self._call_function("on_timers", idents, call)

    def _call_function(self, method: str, idents: Iterable[bytes], call: Callable[[], Produced]) -> Iterator[pa.RecordBatch]:
        """Call the function with some keys, and yield its output in full record batches."""
        keys = self._runtime_context.keys
        keys.idents = idents = list(idents)
        try:
            for each in self._produced(method, call()):
                self._arrow.add(each, method)
                while self._arrow.is_full:
                    yield self._flush()
        except StatefulSparkError:
            raise
        except USER_ERRORS as error:
            raise user_function_error(error, uid=self.step.uid, key_group=None) from error
        finally:
            keys.idents = None
        self._backend.keys_passed(len(idents))

    def _produced(self, method: str, produced: Produced) -> Iterable[object]:
        if produced is None:
            return ()
        if isinstance(produced, pa.RecordBatch | pa.Table):
            return (produced,)
        check_rows(produced, method, self.step.uid)
        return produced


class BatchTimerFiring(TimerFiring):
    """Fires the timers of a batch function, one of each key in a call.

    Args:
        args: As of `TimerFiring`.
        call: Gives timers to the function.
        kwargs: As of `TimerFiring`.
    """

    def __init__(self, *args: Any, call: Callable[[TimeDomain, list[int], list[bytes]], Iterator[pa.RecordBatch]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._call = call

    def _fire(self, kind: str, domain: TimeDomain, up_to_ms: int) -> Iterator[pa.RecordBatch]:
        for times, idents in self._backend.timers.due_together(kind, up_to_ms, self._backend.keys_per_call, distinct=True):
            self._count(len(times))
            yield from self._call(domain, times, idents)
