"""TimerFiring: calls ``on_timer`` for the timers that are due, in a batch of one slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import structlog

from statefulspark.errors import StatefulSparkError
from statefulspark.process.api.contexts import SlotTimerService, TimerContext
from statefulspark.process.api.functions import TimeDomain
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.process.runner.callbacks import callback
from statefulspark.process.runner.failures import USER_ERRORS, user_function_error
from statefulspark.process.runner.key_rows import DueTimers, FiredTimers, KeyRowsFunction
from statefulspark.state.encoding.idents import key_group_of_ident
from statefulspark.state.timers import EVENT_TIMERS, PROCESSING_TIMERS

if TYPE_CHECKING:
    from statefulspark.state.backend import KeyedStateBackend

_log = structlog.get_logger("statefulspark.function")
_MANY: Final = 1_000_000
"""Timers fired in one batch by one slot, at which a warning says that the batch may never end."""


class TimerFiring:
    """Fires the timers of one keyed step in one slot; used by one thread.

    Args:
        step: The step.
        backend: Its keyed state in this slot, with the timers.
        service: The function's timer service, which knows watermark and processing time of the batch.
        add: Takes an output row, and returns True if a record batch is full.
        flush: Returns the full record batch.
        context: What ``on_timer`` gets.

    Attributes:
        fired: Timers fired in this batch.
    """

    def __init__(
        self,
        step: StepSpec,
        backend: KeyedStateBackend,
        service: SlotTimerService,
        *,
        add: Callable[[Any], bool],
        flush: Callable[[], pa.RecordBatch],
        context: TimerContext,
    ) -> None:
        self.fired = 0
        self._ident = b""
        self._step = step
        self._backend = backend
        self._service = service
        self._add = add
        self._flush = flush
        self._context = context

    def fire_due(self) -> Iterator[pa.RecordBatch]:
        """Fire until nothing is due: a timer may register timers that are due at once. Yields the output in full record batches."""
        fired = -1
        while fired != self.fired:
            fired = self.fired
            yield from self._fire(EVENT_TIMERS, TimeDomain.EVENT_TIME, self._service.watermark_ms)
            yield from self._fire(PROCESSING_TIMERS, TimeDomain.PROCESSING_TIME, self._service.processing_time_ms)

    def _fire(self, kind: str, domain: TimeDomain, up_to_ms: int) -> Iterator[pa.RecordBatch]:
        context, is_full, function = self._context, self._add, self._step.function
        context.domain = domain
        self._ident = b""
        try:
            if isinstance(function, KeyRowsFunction):
                for each in function.on_timers(DueTimers(self._due(kind, up_to_ms), self._due_together(kind, up_to_ms)), context):
                    if is_full(each):
                        yield self._flush()
                return
            on_timer = callback(self._step, "on_timer")
            for timestamp_ms in self._due(kind, up_to_ms):
                produced = on_timer(timestamp_ms, context)
                if produced is not None:
                    for each in produced:
                        if is_full(each):
                            yield self._flush()
        except StatefulSparkError:
            raise
        except USER_ERRORS as error:
            key_group = key_group_of_ident(self._ident) if self._ident else None
            raise user_function_error(error, uid=self._step.uid, key_group=key_group) from error

    def _due(self, kind: str, up_to_ms: int) -> Iterator[int]:
        """Yield the times of due timers; the key of the last one is current."""
        context, set_current_ident = self._context, self._backend.set_current_ident
        for timestamp_ms, key, ident in self._backend.timers.due(kind, up_to_ms):
            self._count(1)
            self._ident = ident
            set_current_ident(ident, key)
            context.key, context.time = key, timestamp_ms
            yield timestamp_ms

    def _due_together(self, kind: str, up_to_ms: int) -> Iterator[FiredTimers]:
        """Yield due timers, many at a time."""
        context, backend, decode = self._context, self._backend, self._backend.key_codec.decode
        times: list[int] = []
        idents: list[bytes] = []

        def select(number: int) -> None:
            self._ident = ident = idents[number]
            key = decode(ident[2:])
            backend.set_current_ident(ident, key)
            context.key, context.time = key, times[number]

        for times, idents in backend.timers.due_together(kind, up_to_ms, backend.keys_per_check):
            self._count(len(times))
            yield FiredTimers(times, idents, backend.prefetch, select)
            backend.keys_passed(len(times))

    def _count(self, fired: int) -> None:
        """Count timers, and warn of very many."""
        before = self.fired
        self.fired += fired
        if before // _MANY < self.fired // _MANY:
            _log.warning(
                "a batch fires very many timers. A function that registers timers which are due at once never ends it",
                uid=self._step.uid,
                fired=self.fired,
            )
