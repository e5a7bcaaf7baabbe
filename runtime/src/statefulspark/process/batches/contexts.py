"""The contexts and the timer service that a slot passes to batch functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.functions import TimeDomain
from statefulspark.process.batches.functions import BatchKeyedProcessFunction, BatchTimerService
from statefulspark.process.batches.states import CallKeys
from statefulspark.process.rows.columns import event_time_ms
from statefulspark.state.timers import EVENT_TIMERS, PROCESSING_TIMERS

if TYPE_CHECKING:
    from statefulspark.process.api.contexts import SlotTimerService
    from statefulspark.state.timers import TimerTable

__all__ = ["CallContext", "CallTimerService"]


class CallTimerService(BatchTimerService):
    """The timers of the keys of the call that runs.

    Args:
        clocks: Has the clocks of the batch.
        timers: Of the step.
        keys: Of the call.
        uid: The step.
        event_time: True if the step has event time.
    """

    __slots__ = ("_clocks", "_event_time", "_keys", "_timers", "_uid")

    def __init__(self, clocks: SlotTimerService, timers: TimerTable, keys: CallKeys, *, uid: str, event_time: bool) -> None:
        self._clocks = clocks
        self._timers = timers
        self._keys = keys
        self._uid = uid
        self._event_time = event_time

    def current_processing_time(self) -> int:
        return self._clocks.current_processing_time()

    def current_watermark(self) -> int:
        return self._clocks.current_watermark()

    def register_event_time_timers(self, timestamps: pa.Array) -> None:
        if not self._event_time:
            raise InvalidInputError(
                f"the step {self._uid!r} registers event-time timers but has no event-time column",
                field="event_time",
                remedy="Pass event_time=<column> and watermark=<delay> to process(), or register processing-time timers",
            )
        self._timers.queue(EVENT_TIMERS).register_all(*self._given(timestamps))

    def delete_event_time_timers(self, timestamps: pa.Array) -> None:
        self._timers.queue(EVENT_TIMERS).delete_all(*self._given(timestamps))

    def register_processing_time_timers(self, timestamps: pa.Array) -> None:
        self._timers.queue(PROCESSING_TIMERS).register_all(*self._given(timestamps))

    def delete_processing_time_timers(self, timestamps: pa.Array) -> None:
        self._timers.queue(PROCESSING_TIMERS).delete_all(*self._given(timestamps))

    def _given(self, timestamps: Any) -> tuple[list[int], list[bytes]]:
        """Return times and idents of the keys that have one."""
        idents = self._keys.of_state(f"timers of uid {self._uid!r}")
        if isinstance(timestamps, pa.ChunkedArray):
            timestamps = timestamps.combine_chunks()
        try:
            array = timestamps if isinstance(timestamps, pa.Array) else pa.array(timestamps, from_pandas=False)
            if not pt.is_timestamp(array.type):
                array = array.cast(pa.int64())
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._refused("are no whole numbers", "Pass an array of milliseconds since the epoch, or of timestamps") from error
        if len(array) != len(idents):
            raise self._refused(f"are {len(array)} for {len(idents)} keys", "Pass one per key of the call; null is no timer")
        times = event_time_ms(array)
        if not array.null_count:
            return times, list(idents)  # type: ignore[return-value]  # none is None
        there = [number for number, time in enumerate(times) if time is not None]
        return [times[number] for number in there], [idents[number] for number in there]  # type: ignore[misc]

    def _refused(self, problem: str, remedy: str) -> InvalidInputError:
        return InvalidInputError(f"the times of timers of the step {self._uid!r} {problem}", field="timestamps", remedy=remedy)


class CallContext(BatchKeyedProcessFunction.Context, BatchKeyedProcessFunction.OnTimersContext):
    """One per function runner, which sets what belongs to a call."""

    def __init__(self, service: CallTimerService, schema: pa.Schema) -> None:
        self._service = service
        self._schema = schema
        self.rows_from: np.ndarray[Any, np.dtype[np.int64]] = np.zeros(1, dtype=np.int64)
        self.domain = TimeDomain.EVENT_TIME

    def offsets(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return self.rows_from

    def key_numbers(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.repeat(np.arange(len(self.rows_from) - 1), np.diff(self.rows_from))

    def timer_service(self) -> CallTimerService:
        return self._service

    def time_domain(self) -> TimeDomain:
        return self.domain

    def output_schema(self) -> pa.Schema:
        return self._schema
