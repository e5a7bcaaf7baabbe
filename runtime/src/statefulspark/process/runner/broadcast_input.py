"""BroadcastRunner: runs a function with a keyed and a broadcast input over one batch of one slot.

Rows of the broadcast stream have no key hash, as ticks, and a struct of their own. They are processed after the timers that are due and before the
first keyed row. The columns of keyed rows are in another struct, which is taken apart on arrival, so that from there on they are
rows of a step with one input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from statefulspark.errors import InternalError, StatefulSparkError
from statefulspark.process.api.broadcast_contexts import BroadcastRowContext, KeyedRowContext, ReadingTimerContext
from statefulspark.process.api.contexts import ElementContext, SlotTimerService, TimerContext
from statefulspark.process.rows.reserved_columns import FIRST, KEY_HASH, SOURCE
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.process.runner.broadcast_rows import BroadcastRows
from statefulspark.process.runner.broadcast_summary import BroadcastSummary
from statefulspark.process.runner.callbacks import callback
from statefulspark.process.runner.failures import USER_ERRORS, timestamp_hint, user_function_error
from statefulspark.process.runner.function_runner import KeyedFunctionRunner

if TYPE_CHECKING:
    from statefulspark.state.backend import KeyedStateBackend
    from statefulspark.state.operator.backend import OperatorStateBackend

__all__ = ["BroadcastRunner"]


class BroadcastRunner(KeyedFunctionRunner):
    """A step with a broadcast input in one slot; used by one thread."""

    def __init__(
        self, step: StepSpec, backend: KeyedStateBackend, *, operator_state: OperatorStateBackend, parallelism: int, **kwargs: Any
    ) -> None:
        self._states = operator_state.broadcast
        self._parallelism = parallelism
        super().__init__(step, backend, operator_state=operator_state, parallelism=parallelism, **kwargs)
        self._broadcast_context = BroadcastRowContext(self._timer_service, self._states, backend)
        self._broadcast_rows = self._collector(0)

    @property
    def broadcast(self) -> BroadcastSummary:
        return self._broadcast_rows.summary()

    def open(self) -> None:
        """Declare the broadcast state, then as the other runners."""
        self._states.declare(self.step.broadcast)
        super().open()

    def _contexts(self, timer_service: SlotTimerService) -> tuple[ElementContext, TimerContext]:
        return KeyedRowContext(timer_service, self._states), ReadingTimerContext(timer_service, self._states)

    def _begin(self, sort_bytes: int) -> None:
        super()._begin(sort_bytes)
        self._states.writable = False
        self._broadcast_rows = self._collector(sort_bytes)

    def _collector(self, bytes_max: int) -> BroadcastRows:
        second = self.step.second
        if second is None:
            raise InternalError(f"the step {self.step.uid!r} has no broadcast input")
        return BroadcastRows(self.step.uid, second, bytes_max=bytes_max, parallelism=self._parallelism)

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return super()._counted(self._keyed_and_ticks(batches))

    def _keyed_and_ticks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Keep the rows of the broadcast stream. They are passed on too, because rows without a key hash are dropped as ticks are."""
        for batch in batches:
            self._broadcast_rows.take_from(batch)
            yield batch

    def _arrived(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = rows.column(FIRST).flatten()
        names = [KEY_HASH, SOURCE, *self.step.input_schema.names]
        return super()._arrived(pa.RecordBatch.from_arrays([rows.column(KEY_HASH), rows.column(SOURCE), *columns], names=names))

    def _before_rows(self) -> Iterator[pa.RecordBatch]:
        self.second_max_event_time_ms = self._broadcast_rows.max_event_time_ms()
        context, process_broadcast_element = self._broadcast_context, callback(self.step, "process_broadcast_element")
        is_full = self._output.add
        context.time = None
        self._backend.clear_current_key()
        self._states.writable = True
        try:
            for row, context.time in self._broadcast_rows.sorted():
                produced = process_broadcast_element(row, context)
                if produced is not None:
                    for each in produced:
                        if is_full(each):
                            yield self._flush()
        except StatefulSparkError:
            raise
        except USER_ERRORS as error:
            hint = timestamp_hint(error, event_time=None, timestamp_ms=context.time, inputs=2)
            raise user_function_error(error, uid=self.step.uid, key_group=None, hint=hint) from error
        finally:
            self._states.writable = False
