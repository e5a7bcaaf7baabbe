"""Window assigners: which windows a row belongs to. Tumbling, sliding, count and global windows; sessions have their own module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

from statefulspark.errors import InvalidInputError
from statefulspark.process.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from statefulspark.process.windows.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    Window,
    WindowSerializer,
)
from statefulspark.state.api.descriptors import ValueStateDescriptor
from statefulspark.state.api.names import RuntimeName
from statefulspark.state.times import Duration, Time
from statefulspark.state.types.types import Types

if TYPE_CHECKING:
    from statefulspark.process.api.functions import RuntimeContext

__all__ = [
    "CountSlidingWindowAssigner",
    "CountTumblingWindowAssigner",
    "GlobalWindows",
    "MergingWindowAssigner",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
]

Length = Time | Duration
_COUNTER: Final = RuntimeName("_assigner(count)")
"""Name of the state with the number of rows of a key, part of the format of checkpoints."""


class WindowAssigner(ABC):
    """Decides which windows a row belongs to."""

    class WindowAssignerContext(ABC):
        """Context that an assigner may use."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time of the batch, in milliseconds since the epoch."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Return the context of the step, with state per key."""

    @abstractmethod
    def assign_windows(self, element: Any, timestamp: int | None, context: WindowAssigner.WindowAssignerContext) -> Collection[Window]:
        """Return the windows of a row. ``timestamp`` is its event time in milliseconds since the epoch, None without one."""

    @abstractmethod
    def get_default_trigger(self, env: Any = None) -> Trigger:
        """Return the trigger of windows for which none is given. ``env`` is there for PyFlink's sake."""

    @abstractmethod
    def get_window_serializer(self) -> WindowSerializer:
        """Return the serializer of the windows: a `TimeWindowSerializer`, `CountWindowSerializer` or `GlobalWindowSerializer`."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return True if the windows are assigned by event time."""


class MergingWindowAssigner(WindowAssigner):
    """An assigner whose windows merge, such as sessions. Its windows are TimeWindows."""

    class MergeCallback(ABC):
        """Takes the sets of windows that become one."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[TimeWindow], merge_result: TimeWindow) -> None:
            """Replace ``to_be_merged`` by ``merge_result``."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback) -> None:
        """Call ``callback.merge`` for each set of windows that become one."""

    def get_window_serializer(self) -> WindowSerializer:
        return TimeWindowSerializer()


class _TimeWindows(WindowAssigner):
    """Windows of a fixed size: one starts every ``slide`` milliseconds."""

    def __init__(self, size: int, slide: int, offset: int) -> None:
        name = type(self).__name__
        for word, length in (("size", size), ("slide", slide)):
            if length <= 0:
                raise InvalidInputError(f"{name} has a {word} of {length} ms", field="window", remedy=f"Give a {word} of at least 1 ms")
        if abs(offset) >= slide:
            raise InvalidInputError(
                f"{name} has an offset of {offset} ms", field="window", remedy=f"Give an offset between -{slide} and {slide} ms, exclusive"
            )
        self._size, self._slide, self._offset = size, slide, offset

    def _windows(self, timestamp: int) -> list[Window]:
        start = TimeWindow.get_window_start_with_offset(timestamp, self._offset, self._slide)
        return [TimeWindow(each, each + self._size) for each in range(start, timestamp - self._size, -self._slide)]

    @property
    def windows_per_row(self) -> int:
        """Most windows that a row belongs to."""
        return -(-self._size // self._slide)

    @property
    def dropped_ms(self) -> int:
        """Length of the gaps between windows, whose rows belong to none, in milliseconds."""
        return max(0, self._slide - self._size)

    def get_window_serializer(self) -> WindowSerializer:
        return TimeWindowSerializer()


class _EventTimeWindows(_TimeWindows):
    def assign_windows(self, element: Any, timestamp: int | None, context: WindowAssigner.WindowAssignerContext) -> list[Window]:  # noqa: ARG002
        return self._windows(event_time(timestamp))

    def get_default_trigger(self, env: Any = None) -> Trigger:  # noqa: ARG002
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class _ProcessingTimeWindows(_TimeWindows):
    def assign_windows(self, element: Any, timestamp: int | None, context: WindowAssigner.WindowAssignerContext) -> list[Window]:  # noqa: ARG002
        return self._windows(context.get_current_processing_time())

    def get_default_trigger(self, env: Any = None) -> Trigger:  # noqa: ARG002
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class TumblingEventTimeWindows(_EventTimeWindows):
    """Windows of one size, one after another, by event time.

    >>> from statefulspark import Time, TumblingEventTimeWindows
    >>> TumblingEventTimeWindows.of(Time.minutes(1)).assign_windows(None, 90_000, None)
    [TimeWindow(start=60000, end=120000)]

    Args:
        size: Milliseconds, at least 1.
        offset: Milliseconds by which windows start later than at multiples of ``size``; less than ``size``.

    Raises:
        InvalidInputError: A length is out of bounds.
    """

    def __init__(self, size: int, offset: int) -> None:
        super().__init__(size, size, offset)

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingEventTimeWindows:
        """Make the assigner."""
        return TumblingEventTimeWindows(milliseconds(size, "size"), milliseconds(offset, "offset"))


class TumblingProcessingTimeWindows(_ProcessingTimeWindows):
    """Like `TumblingEventTimeWindows`, by processing time, which is one time for all rows of a batch."""

    def __init__(self, size: int, offset: int) -> None:
        super().__init__(size, size, offset)

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingProcessingTimeWindows:
        """Make the assigner."""
        return TumblingProcessingTimeWindows(milliseconds(size, "size"), milliseconds(offset, "offset"))


class SlidingEventTimeWindows(_EventTimeWindows):
    """Windows of one size that overlap, by event time: one starts every ``slide`` milliseconds, and a row belongs to several.

    Args:
        size: Milliseconds, at least 1.
        slide: Milliseconds from one window's start to the next one's, at least 1.
        offset: Milliseconds by which windows start later than at multiples of ``slide``; less than ``slide``.

    Raises:
        InvalidInputError: A length is out of bounds.
    """

    def __init__(self, size: int, slide: int, offset: int) -> None:
        super().__init__(size, slide, offset)

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingEventTimeWindows:
        """Make the assigner."""
        return SlidingEventTimeWindows(milliseconds(size, "size"), milliseconds(slide, "slide"), milliseconds(offset, "offset"))


class SlidingProcessingTimeWindows(_ProcessingTimeWindows):
    """Like `SlidingEventTimeWindows`, by processing time, which is one time for all rows of a batch."""

    def __init__(self, size: int, slide: int, offset: int) -> None:
        super().__init__(size, slide, offset)

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingProcessingTimeWindows:
        """Make the assigner."""
        return SlidingProcessingTimeWindows(milliseconds(size, "size"), milliseconds(slide, "slide"), milliseconds(offset, "offset"))


class _CountWindows(WindowAssigner):
    """Numbers the rows of a key; the number decides on the windows."""

    numbering: str
    """Part of the names of states: with another size, the ids of windows mean other rows."""
    _descriptor: ValueStateDescriptor | None = None

    def _next(self, context: WindowAssigner.WindowAssignerContext) -> int:
        """Return the number of rows of the key before this one."""
        if self._descriptor is None:
            self._descriptor = ValueStateDescriptor(_COUNTER, Types.LONG())
        counter = context.get_runtime_context().get_state(self._descriptor)
        number: int = counter.value() or 0
        counter.update(number + 1)
        return number

    def get_window_serializer(self) -> WindowSerializer:
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        return False


class CountTumblingWindowAssigner(_CountWindows):
    """Windows of ``window_size`` rows, one after another. `KeyedStream.count_window` makes it."""

    def __init__(self, window_size: int) -> None:
        self._size = positive(window_size, "size")
        self.numbering = str(window_size)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Make the assigner."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(self, element: Any, timestamp: int | None, context: WindowAssigner.WindowAssignerContext) -> list[Window]:  # noqa: ARG002
        return [CountWindow(self._next(context) // self._size)]

    def get_default_trigger(self, env: Any = None) -> Trigger:  # noqa: ARG002
        return PurgingTrigger.of(CountTrigger.of(self._size))


class CountSlidingWindowAssigner(_CountWindows):
    """Windows of ``window_size`` rows, of which one starts every ``window_slide`` rows. `KeyedStream.count_window` makes it."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        self._size = positive(window_size, "size")
        self._slide = positive(window_slide, "slide")
        self.numbering = f"{window_size}/{window_slide}"

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Make the assigner."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(self, element: Any, timestamp: int | None, context: WindowAssigner.WindowAssignerContext) -> list[Window]:  # noqa: ARG002
        number = self._next(context)
        first = max(0, -(-(number - self._size + 1) // self._slide))
        return [CountWindow(each) for each in range(first, number // self._slide + 1)]

    def get_default_trigger(self, env: Any = None) -> Trigger:  # noqa: ARG002
        return PurgingTrigger.of(CountTrigger.of(self._size))


class GlobalWindows(WindowAssigner):
    """All rows of a key in one window. It never fires by itself, so it needs a trigger."""

    @staticmethod
    def create() -> GlobalWindows:
        """Make the assigner."""
        return GlobalWindows()

    def assign_windows(self, element: Any, timestamp: int | None, context: WindowAssigner.WindowAssignerContext) -> list[Window]:  # noqa: ARG002
        return [GlobalWindow()]

    def get_default_trigger(self, env: Any = None) -> Trigger:  # noqa: ARG002
        return NeverTrigger()

    def get_window_serializer(self) -> WindowSerializer:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False


def milliseconds(length: Length | None, word: str) -> int:
    """Return a length in whole milliseconds, 0 for None.

    Raises:
        InvalidInputError: It is no Time or Duration, or it has a part of a millisecond.
    """
    if length is None:
        return 0
    if not isinstance(length, Time | Duration):
        raise InvalidInputError(
            f"the {word} is {type(length).__name__}", field="window", remedy=f"Give the {word} as Time or Duration, e.g. Time.minutes(5)"
        )
    whole: object = Time.of(length).to_milliseconds()
    if not isinstance(whole, int):
        raise InvalidInputError(
            f"the {word} is {whole!r} ms", field="window", remedy="Give whole milliseconds, e.g. Time.milliseconds(500)"
        )
    return whole


def positive(number: int, word: str, field: str = "count_window") -> int:
    """Return a number of rows.

    Raises:
        InvalidInputError: It is no int of at least 1.
    """
    if type(number) is not int or number < 1:
        raise InvalidInputError(f"the {word} is {number!r}", field=field, remedy=f"Give a {word} of at least 1 row")
    return number


def event_time(timestamp: int | None) -> int:
    """Return the event time of a row.

    Raises:
        InvalidInputError: The row has none.
    """
    if timestamp is None:
        raise InvalidInputError("a row has no event time", field="event_time", remedy="Filter such rows before key_by")
    return timestamp
