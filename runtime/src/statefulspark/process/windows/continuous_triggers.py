"""Triggers that fire again and again while a window is open."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from statefulspark.errors import InvalidInputError
from statefulspark.process.windows.assigners import Length, milliseconds
from statefulspark.process.windows.triggers import Trigger, TriggerResult
from statefulspark.process.windows.windows import Window
from statefulspark.state.api.descriptors import ReducingStateDescriptor
from statefulspark.state.timers import TIMESTAMP_MS_MAX
from statefulspark.state.types.types import Types

__all__ = ["ContinuousEventTimeTrigger", "ContinuousProcessingTimeTrigger"]


class _Continuous(Trigger):
    """The time at which a window fires next is its state."""

    def __init__(self, interval: int) -> None:
        if type(interval) is not int or interval < 1:
            name = type(self).__name__
            raise InvalidInputError(
                f"{name} has an interval of {interval!r} ms", field="trigger", remedy="Give an interval of at least 1 ms"
            )
        self.interval = interval
        self.state_desc = ReducingStateDescriptor("fire-time", min, Types.LONG())

    def can_merge(self) -> bool:
        return True

    def _fired(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire if ``time`` is the time at which the window fires next."""
        next_fire = ctx.get_partitioned_state(self.state_desc)
        if next_fire.get() != time:
            return TriggerResult.CONTINUE
        next_fire.clear()
        self._register_next(time, window, ctx)
        return TriggerResult.FIRE

    def _merged(self, ctx: Trigger.OnMergeContext) -> int | None:
        """Return the time at which a merged window fires next; None if no part of it had one."""
        ctx.merge_partitioned_state(self.state_desc)
        next_fire: int | None = ctx.get_partitioned_state(self.state_desc).get()
        return next_fire

    @abstractmethod
    def _register_next(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> None:
        """Store the time at which the window fires after ``time``, and register its timer."""


class ContinuousEventTimeTrigger(_Continuous):
    """Fires every ``interval`` milliseconds of event time, and once the watermark passes the end of the window."""

    @staticmethod
    def of(interval: Length) -> ContinuousEventTimeTrigger:
        """Make the trigger."""
        return ContinuousEventTimeTrigger(milliseconds(interval, "interval"))

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        if ctx.get_partitioned_state(self.state_desc).get() is None and timestamp is not None:
            self._register_next(timestamp - timestamp % self.interval, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        return self._fired(time, window, ctx)

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        if (next_fire := self._merged(ctx)) is not None:
            ctx.register_event_time_timer(next_fire)
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        next_fire = ctx.get_partitioned_state(self.state_desc)
        if (time := next_fire.get()) is not None:
            ctx.delete_event_time_timer(time)
            next_fire.clear()
        ctx.delete_event_time_timer(window.max_timestamp())

    def _register_next(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> None:
        if ctx.get_current_watermark() == TIMESTAMP_MS_MAX:
            # The stream has ended. The global window would go on firing until the end of time; its last timer is registered.
            return
        next_fire = min(time + self.interval, window.max_timestamp())
        ctx.get_partitioned_state(self.state_desc).add(next_fire)
        ctx.register_event_time_timer(next_fire)


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires every ``interval`` milliseconds of processing time while the window is open, and at the end of a processing-time window."""

    @staticmethod
    def of(interval: Length) -> ContinuousProcessingTimeTrigger:
        """Make the trigger."""
        return ContinuousProcessingTimeTrigger(milliseconds(interval, "interval"))

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        if ctx.get_partitioned_state(self.state_desc).get() is None:
            now = ctx.get_current_processing_time()
            self._register_next(now - now % self.interval, window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return self._fired(time, window, ctx)

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:  # noqa: ARG002
        if (next_fire := self._merged(ctx)) is not None:
            ctx.register_processing_time_timer(next_fire)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:  # noqa: ARG002
        next_fire = ctx.get_partitioned_state(self.state_desc)
        if (time := next_fire.get()) is not None:
            ctx.delete_processing_time_timer(time)
            next_fire.clear()

    def _register_next(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> None:
        # An event-time window usually lies in the past of processing time. Its end must not be the next time, again and again.
        latest = window.max_timestamp()
        next_fire = min(time + self.interval, latest) if latest > time else time + self.interval
        ctx.get_partitioned_state(self.state_desc).add(next_fire)
        ctx.register_processing_time_timer(next_fire)
