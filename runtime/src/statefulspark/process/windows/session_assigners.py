"""Session windows: rows of a key that are less than a gap apart share one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from statefulspark.errors import InvalidInputError
from statefulspark.process.windows.assigners import Length, MergingWindowAssigner, WindowAssigner, event_time, milliseconds
from statefulspark.process.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from statefulspark.process.windows.windows import TimeWindow, Window

__all__ = [
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
]


class SessionWindowTimeGapExtractor(ABC):
    """Takes the gap of a session from its rows."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap after ``element`` in milliseconds, at least 1."""


class _SessionWindows(MergingWindowAssigner):
    """A row's window lasts for the gap after it; windows that touch merge."""

    def __init__(self, gap: int | SessionWindowTimeGapExtractor) -> None:
        if isinstance(gap, SessionWindowTimeGapExtractor):
            self._gap_of: Callable[[Any], int] = gap.extract
            self._fixed_ms: int | None = None
        else:
            self._fixed_ms = fixed_ms = _checked(gap)
            self._gap_of = lambda _: fixed_ms

    def _gap_ms(self, element: Any) -> int:
        return _checked(self._gap_of(element))

    def _window(self, element: Any, timestamp: int) -> list[Window]:
        return [TimeWindow(timestamp, timestamp + self._gap_ms(element))]

    def merge_windows(self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback) -> None:
        TimeWindow.merge_windows(windows, callback)


class _EventTimeSessions(_SessionWindows):
    def assign_windows(self, element: Any, timestamp: int | None, context: WindowAssigner.WindowAssignerContext) -> list[Window]:  # noqa: ARG002
        return self._window(element, event_time(timestamp))

    def get_default_trigger(self, env: Any = None) -> Trigger:  # noqa: ARG002
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class _ProcessingTimeSessions(_SessionWindows):
    def assign_windows(self, element: Any, timestamp: int | None, context: WindowAssigner.WindowAssignerContext) -> list[Window]:  # noqa: ARG002
        return self._window(element, context.get_current_processing_time())

    def get_default_trigger(self, env: Any = None) -> Trigger:  # noqa: ARG002
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class EventTimeSessionWindows(_EventTimeSessions):
    """Sessions by event time: a session ends once ``session_gap`` milliseconds go by without a row.

    >>> from statefulspark import EventTimeSessionWindows, Time
    >>> EventTimeSessionWindows.with_gap(Time.minutes(30)).assign_windows(None, 0, None)
    [TimeWindow(start=0, end=1800000)]
    """

    def __init__(self, session_gap: int) -> None:
        super().__init__(session_gap)

    @staticmethod
    def with_gap(size: Length) -> EventTimeSessionWindows:
        """Make the assigner."""
        return EventTimeSessionWindows(milliseconds(size, "gap"))

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows:
        """Make an assigner whose gap depends on the row."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_ProcessingTimeSessions):
    """Sessions by processing time: a session ends once ``session_gap`` milliseconds go by without a row."""

    def __init__(self, session_gap: int) -> None:
        super().__init__(session_gap)

    @staticmethod
    def with_gap(size: Length) -> ProcessingTimeSessionWindows:
        """Make the assigner."""
        return ProcessingTimeSessionWindows(milliseconds(size, "gap"))

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows:
        """Make an assigner whose gap depends on the row."""
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(_EventTimeSessions):
    """Sessions by event time, with a gap that depends on the row."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        super().__init__(session_window_time_gap_extractor)

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows:
        """Make the assigner."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_ProcessingTimeSessions):
    """Sessions by processing time, with a gap that depends on the row."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        super().__init__(session_window_time_gap_extractor)

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows:
        """Make the assigner."""
        return DynamicProcessingTimeSessionWindows(extractor)


def merges_touching_windows(assigner: MergingWindowAssigner) -> bool:
    """Return True if an assigner is known to merge just the windows that overlap or touch."""
    return type(assigner).merge_windows is _SessionWindows.merge_windows


def event_time_gap(assigner: WindowAssigner) -> Callable[[Any], int] | None:
    """Return the function from a row to its gap in milliseconds, or None if the assigner does not just make sessions by event time."""
    if type(assigner) in (EventTimeSessionWindows, DynamicEventTimeSessionWindows) and isinstance(assigner, _SessionWindows):
        return assigner._gap_ms  # noqa: SLF001  # the class of this module
    return None


def fixed_gap(assigner: WindowAssigner) -> int | None:
    """Return the gap in milliseconds if it is the same for all rows and the assigner just makes sessions by event time, None otherwise."""
    return assigner._fixed_ms if type(assigner) is EventTimeSessionWindows else None  # noqa: SLF001  # a class of this module


def _checked(gap: int) -> int:
    if type(gap) is not int or gap <= 0:
        raise InvalidInputError(f"a session has a gap of {gap!r} ms", field="window", remedy="Give a gap of at least 1 ms, as an int")
    return gap
