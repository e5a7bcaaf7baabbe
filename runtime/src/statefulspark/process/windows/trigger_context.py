"""TriggerContext: timers and state of one key and window, for triggers and evictors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statefulspark.process.api.functions import RuntimeContext, TimeDomain, TimerService
from statefulspark.process.api.metrics import MetricGroup
from statefulspark.process.windows.evictors import Evictor
from statefulspark.process.windows.triggers import Trigger
from statefulspark.process.windows.window_states import SelectedWindow, WindowStates
from statefulspark.process.windows.window_timers import WindowTimers
from statefulspark.state.api.descriptors import StateDescriptor

__all__ = ["WindowTriggerContext"]


class WindowTriggerContext(Trigger.OnMergeContext, Evictor.EvictorContext):
    """One per window operator, which selects the window and sets ``service`` before each call.

    Attributes:
        service: Timers and times of the current key.
        merged: While windows merge, those that are replaced.

    Args:
        context: Of the step.
        scope: Kinds of windows and contents, part of the names of states.
        timers: Of its windows.
        selected: The window.
    """

    service: TimerService

    def __init__(self, context: RuntimeContext, scope: str, timers: WindowTimers, selected: SelectedWindow) -> None:
        self._context = context
        self._timers = timers
        self._selected = selected
        self.states = WindowStates(context, "trigger", scope, selected)
        self.merged: Iterable[bytes] = ()

    def get_current_processing_time(self) -> int:
        return self.service.current_processing_time()

    def get_current_watermark(self) -> int:
        return self.service.current_watermark()

    def get_metric_group(self) -> MetricGroup:
        return self._context.get_metrics_group()

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.register(TimeDomain.PROCESSING_TIME, self.service, time, self._selected.data)

    def register_event_time_timer(self, time: int) -> None:
        self._timers.register(TimeDomain.EVENT_TIME, self.service, time, self._selected.data)

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.delete(TimeDomain.PROCESSING_TIME, self.service, time, self._selected.data)

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.delete(TimeDomain.EVENT_TIME, self.service, time, self._selected.data)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        return self.states.get(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        self.states.merge(state_descriptor, self.merged)
