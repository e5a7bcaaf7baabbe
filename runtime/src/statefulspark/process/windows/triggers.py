"""Triggers: when a window emits its result. The base class, and triggers by time of the window and by number of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any

from statefulspark.errors import InvalidInputError
from statefulspark.process.windows.windows import Window
from statefulspark.state.api.descriptors import ReducingStateDescriptor, StateDescriptor
from statefulspark.state.types.types import Types

if TYPE_CHECKING:
    from statefulspark.process.api.metrics import MetricGroup

__all__ = ["CountTrigger", "EventTimeTrigger", "NeverTrigger", "ProcessingTimeTrigger", "PurgingTrigger", "Trigger", "TriggerResult"]


class TriggerResult(Enum):
    """Effect of a trigger on a window: ``FIRE`` emits its result, ``PURGE`` removes its contents."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    def is_fire(self) -> bool:
        """Return True if the result is emitted."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Return True if the contents are removed."""
        return self.value[1]


class Trigger(ABC):
    """Decides when a window fires. One instance serves all windows of a slot; what it remembers of a window is in partitioned state."""

    class TriggerContext(ABC):
        """Timers and state of one key and window."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time of the batch, in milliseconds since the epoch."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the group in which the trigger registers its own metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark in milliseconds since the epoch, -9223372036854775808 before there is one."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Call ``on_processing_time`` once processing time has reached ``time``."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call ``on_event_time`` once the watermark has reached ``time``."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Forget a timer."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Forget a timer."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return the state of the descriptor, per key and window."""

    class OnMergeContext(TriggerContext):
        """The context while windows merge; timers and state are those of the new window."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of the merged windows into that of the new one. The state is a reducing, aggregating or list state."""

    @abstractmethod
    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Handle a row that was added to the window. ``timestamp`` is its event time in milliseconds since the epoch."""

    @abstractmethod
    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Handle a processing-time timer of the window."""

    @abstractmethod
    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Handle an event-time timer of the window."""

    def can_merge(self) -> bool:
        """Return True if the trigger can handle windows that merge."""
        return False

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:  # noqa: ARG002  for overriding
        """Handle that windows have merged into ``window``."""
        raise InvalidInputError(f"{type(self).__name__} cannot merge windows", field="trigger", remedy="Override can_merge and on_merge")

    @abstractmethod
    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        """Remove the state and the timers of the window."""


class EventTimeTrigger(Trigger):
    """Fires once the watermark passes the end of the window, and for each late row after that."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """Make the trigger."""
        return EventTimeTrigger()

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(Trigger):
    """Fires once processing time passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """Make the trigger."""
        return ProcessingTimeTrigger()

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class CountTrigger(Trigger):
    """Fires each time ``window_size`` rows have come since the window last fired.

    Args:
        window_size: Number of rows, at least 1.

    Raises:
        InvalidInputError: The number is out of bounds.
    """

    def __init__(self, window_size: int) -> None:
        if type(window_size) is not int or window_size < 1:
            raise InvalidInputError(f"CountTrigger of {window_size!r} rows", field="trigger", remedy="Give a number of at least 1 row")
        self._size = window_size
        self._count = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Make the trigger."""
        return CountTrigger(window_size)

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        count = ctx.get_partitioned_state(self._count)
        count.add(1)
        if count.get() < self._size:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:  # noqa: ARG002
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:  # noqa: ARG002
        ctx.get_partitioned_state(self._count).clear()


class PurgingTrigger(Trigger):
    """Makes another trigger remove the contents of a window whenever it fires."""

    def __init__(self, nested_trigger: Trigger) -> None:
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger) -> PurgingTrigger:
        """Make the trigger."""
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)


class NeverTrigger(Trigger):
    """Never fires: the default of `GlobalWindows`, for which another trigger is needed."""

    def on_element(self, element: Any, timestamp: int | None, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:  # noqa: ARG002
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        """Do nothing."""

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        """Do nothing."""


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result
