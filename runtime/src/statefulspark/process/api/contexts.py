"""The contexts that a slot passes to functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.keygroups import KeyGroupRange, key_group_range
from statefulspark.process.api.co_functions import KeyedCoProcessFunction
from statefulspark.process.api.functions import KeyedProcessFunction, RuntimeContext, TimeDomain, TimerService
from statefulspark.process.api.metrics import MetricGroup
from statefulspark.state.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
    descriptor_of,
)
from statefulspark.state.timers import EVENT_TIMERS, PROCESSING_TIMERS, TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN

if TYPE_CHECKING:
    from statefulspark.state.api.states import AggregatingState, ListState, MapState, ReducingState, ValueState
    from statefulspark.state.backend import KeyedStateBackend
    from statefulspark.state.timers import TimerTable

__all__ = [
    "MIN_WATERMARK_MS",
    "ElementContext",
    "SlotRuntimeContext",
    "SlotTimerService",
    "TimerContext",
]

MIN_WATERMARK_MS = TIMESTAMP_MS_MIN
"""Result of ``current_watermark`` before there is a watermark, as in PyFlink."""


class SlotTimerService(TimerService):
    """The timers of whatever key the backend has as its current one."""

    __slots__ = ("_event_time", "_event_timers", "_register_event_time", "_timers", "_uid", "processing_time_ms", "watermark_ms")

    def __init__(self, timers: TimerTable, *, uid: str, event_time: bool) -> None:
        self._timers = timers
        # Nearly all timers are of this kind, and are registered with no call in between.
        self._event_timers = timers.queue(EVENT_TIMERS)
        self._register_event_time = self._event_timers.register
        self._uid = uid
        self._event_time = event_time
        self.processing_time_ms = 0
        self.watermark_ms = MIN_WATERMARK_MS

    def current_processing_time(self) -> int:
        return self.processing_time_ms

    def current_watermark(self) -> int:
        return self.watermark_ms

    def register_event_time_timer(self, timestamp: int) -> None:
        if not self._event_time:
            raise InvalidInputError(
                f"the step {self._uid!r} registers an event-time timer but has no event-time column",
                field="event_time",
                remedy="Pass event_time=<column> and watermark=<delay> to process(), or register a processing-time timer",
            )
        is_plain = timestamp.__class__ is int and TIMESTAMP_MS_MIN <= timestamp <= TIMESTAMP_MS_MAX
        self._register_event_time(timestamp if is_plain else self._checked(timestamp))

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._timers.register(PROCESSING_TIMERS, self._checked(timestamp))

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers.delete(EVENT_TIMERS, self._checked(timestamp))

    def register_event_time_timers(self, timestamps: Sequence[int], idents: Sequence[bytes]) -> None:
        """Register a timer each for keys that need not be current; the step has an event time, and the timestamps are within bounds."""
        self._event_timers.register_all(timestamps, idents)

    def delete_event_time_timers(self, timestamps: Sequence[int], idents: Sequence[bytes]) -> None:
        """Delete a timer each of keys that need not be current; the timestamps are within bounds."""
        self._event_timers.delete_all(timestamps, idents)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers.delete(PROCESSING_TIMERS, self._checked(timestamp))

    def _checked(self, timestamp: int) -> int:
        if timestamp.__class__ is not int:
            if isinstance(timestamp, bool) or not hasattr(timestamp, "__index__"):
                raise InvalidInputError(
                    f"the time of a timer of the step {self._uid!r} is {type_name(type(timestamp))}",
                    field="timestamp",
                    remedy="Pass whole milliseconds since the epoch: int(...)",
                )
            timestamp = timestamp.__index__()
        if not TIMESTAMP_MS_MIN <= timestamp <= TIMESTAMP_MS_MAX:
            raise InvalidInputError(
                f"a timer of the step {self._uid!r} does not fit in 64 bits", field="timestamp", remedy="Use milliseconds since the epoch"
            )
        return timestamp


class ElementContext(KeyedProcessFunction.Context, KeyedCoProcessFunction.Context):
    """One per function runner; the row loop sets ``key`` and ``time`` before each call."""

    __slots__ = ("_timer_service", "key", "time")

    def __init__(self, timer_service: SlotTimerService) -> None:
        self._timer_service = timer_service
        self.key: Any = None
        self.time: int | None = None

    def get_current_key(self) -> Any:
        return self.key

    def timestamp(self) -> int | None:
        return self.time

    def timer_service(self) -> SlotTimerService:
        return self._timer_service


class TimerContext(ElementContext, KeyedProcessFunction.OnTimerContext, KeyedCoProcessFunction.OnTimerContext):
    """One per function runner; the timer loop sets ``domain`` too."""

    __slots__ = ("domain",)

    def __init__(self, timer_service: SlotTimerService) -> None:
        super().__init__(timer_service)
        self.domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        return self.domain


class SlotRuntimeContext(RuntimeContext):
    """A step's view of its slot."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        *,
        uid: str,
        slot: int,
        parallelism: int,
        max_parallelism: int,
        attempt: int,
        job_parameters: Mapping[str, str],
        metrics: MetricGroup,
    ) -> None:
        self._backend = backend
        self._uid = uid
        self._slot = slot
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._attempt = attempt
        self._job_parameters = job_parameters
        self._metrics = metrics

    def get_task_name(self) -> str:
        return self._uid

    def get_number_of_parallel_subtasks(self) -> int:
        return self._parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._slot

    def get_key_group_range(self) -> KeyGroupRange:
        return key_group_range(self._slot, self._parallelism, self._max_parallelism)

    def get_current_key_group_index(self) -> int:
        return self._backend.current_key_group()

    def get_attempt_number(self) -> int:
        return self._attempt

    def get_task_name_with_subtasks(self) -> str:
        return f"{self._uid} ({self._slot + 1}/{self._parallelism})"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        return self._metrics

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return self._backend.value_state(descriptor_of(ValueStateDescriptor, state_descriptor))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return self._backend.list_state(descriptor_of(ListStateDescriptor, state_descriptor))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return self._backend.map_state(descriptor_of(MapStateDescriptor, state_descriptor))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        return self._backend.reducing_state(descriptor_of(ReducingStateDescriptor, state_descriptor))

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        return self._backend.aggregating_state(descriptor_of(AggregatingStateDescriptor, state_descriptor))
