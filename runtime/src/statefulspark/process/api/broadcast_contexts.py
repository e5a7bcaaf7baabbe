"""The contexts that a slot passes to functions with a broadcast input."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.process.api.broadcast_functions import KeyedBroadcastProcessFunction, KeyedStateFunction
from statefulspark.process.api.contexts import ElementContext, SlotTimerService, TimerContext

if TYPE_CHECKING:
    from statefulspark.state.api.broadcast_state import BroadcastState, ReadOnlyBroadcastState
    from statefulspark.state.api.descriptors import MapStateDescriptor, StateDescriptor
    from statefulspark.state.backend import KeyedStateBackend
    from statefulspark.state.operator.broadcast import BroadcastStates

__all__ = ["BroadcastRowContext", "KeyedRowContext", "ReadingTimerContext"]


class _Reading:
    """Context of functions that read broadcast state. It has no slots, because a class cannot have two bases that do."""

    __slots__ = ()
    _states: BroadcastStates
    _timer_service: SlotTimerService

    def current_processing_time(self) -> int:
        return self._timer_service.processing_time_ms

    def current_watermark(self) -> int:
        return self._timer_service.watermark_ms

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        return self._states.read_only(state_descriptor)


class KeyedRowContext(_Reading, ElementContext, KeyedBroadcastProcessFunction.ReadOnlyContext):
    """Of rows of the keyed stream; the row loop sets ``key`` and ``time`` before each call."""

    __slots__ = ("_states",)

    def __init__(self, timer_service: SlotTimerService, states: BroadcastStates) -> None:
        super().__init__(timer_service)
        self._states = states


class ReadingTimerContext(_Reading, TimerContext, KeyedBroadcastProcessFunction.OnTimerContext):
    """Of timers; the timer loop sets ``domain`` too."""

    __slots__ = ("_states",)

    def __init__(self, timer_service: SlotTimerService, states: BroadcastStates) -> None:
        super().__init__(timer_service)
        self._states = states


class BroadcastRowContext(KeyedBroadcastProcessFunction.Context):
    """Of rows of the broadcast stream; the row loop sets ``time`` before each call."""

    __slots__ = ("_backend", "_states", "_timer_service", "time")

    def __init__(self, timer_service: SlotTimerService, states: BroadcastStates, backend: KeyedStateBackend) -> None:
        self._timer_service = timer_service
        self._states = states
        self._backend = backend
        self.time: int | None = None

    def timestamp(self) -> int | None:
        return self.time

    def current_processing_time(self) -> int:
        return self._timer_service.processing_time_ms

    def current_watermark(self) -> int:
        return self._timer_service.watermark_ms

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._states.state(state_descriptor)

    def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: KeyedStateFunction | Callable[[Any, Any], None]) -> None:
        visit = function.process if isinstance(function, KeyedStateFunction) else function
        if not callable(visit):
            raise InvalidInputError(
                f"expected a function of key and state, got {type_name(type(function))}",
                field="apply_to_keyed_state",
                remedy="Pass a function, or an instance of KeyedStateFunction",
            )
        # Each slot has other keys, so what is changed for each of them would differ from slot to slot.
        writable, self._states.writable = self._states.writable, False
        try:
            self._backend.apply_to_keyed_state(state_descriptor, visit)
        finally:
            self._states.writable = writable
