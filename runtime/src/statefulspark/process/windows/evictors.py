"""Evictors: which rows of a window are left out when it fires. Java's names; PyFlink has none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from statefulspark.errors import InvalidInputError
from statefulspark.process.windows.assigners import Length, milliseconds, positive
from statefulspark.process.windows.windows import Window

__all__ = ["CountEvictor", "DeltaEvictor", "Evictor", "TimeEvictor", "TimestampedValue"]


@dataclass(frozen=True, slots=True)
class TimestampedValue:
    """A row of a window.

    Attributes:
        value: The row.
        timestamp: Its event time in milliseconds since the epoch, None without one.
    """

    value: Any
    timestamp: int | None


class Evictor(ABC):
    """Removes rows from a window that fires, for good. With an evictor a window keeps all its rows until then."""

    class EvictorContext(ABC):
        """The times of the batch."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time of the batch, in milliseconds since the epoch."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark in milliseconds since the epoch, -9223372036854775808 before there is one."""

    @abstractmethod
    def evict_before(self, elements: list[TimestampedValue], size: int, window: Window, evictor_context: Evictor.EvictorContext) -> None:
        """Remove from ``elements``, a list of ``size``, what the window function shall not see."""

    @abstractmethod
    def evict_after(self, elements: list[TimestampedValue], size: int, window: Window, evictor_context: Evictor.EvictorContext) -> None:
        """Remove from ``elements``, a list of ``size``, what the window shall not keep once the window function has seen it."""


class _BeforeOrAfter(Evictor):
    """Evicts at one of the two times."""

    def __init__(self, *, do_evict_after: bool) -> None:
        self._after = do_evict_after

    def evict_before(self, elements: list[TimestampedValue], size: int, window: Window, evictor_context: Evictor.EvictorContext) -> None:  # noqa: ARG002
        if not self._after and elements:
            elements[:] = self._kept(elements)

    def evict_after(self, elements: list[TimestampedValue], size: int, window: Window, evictor_context: Evictor.EvictorContext) -> None:  # noqa: ARG002
        if self._after and elements:
            elements[:] = self._kept(elements)

    @abstractmethod
    def _kept(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        """Return the elements that stay, of at least one."""


class CountEvictor(_BeforeOrAfter):
    """Keeps the last ``max_count`` rows."""

    def __init__(self, max_count: int, *, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after=do_evict_after)
        self._count = positive(max_count, "count", "evictor")

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Make the evictor."""
        return CountEvictor(max_count, do_evict_after=do_evict_after)

    def _kept(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        return elements[-self._count :]


class TimeEvictor(_BeforeOrAfter):
    """Keeps the rows whose event time is less than ``window_size`` milliseconds before the latest one. Without event times it keeps all."""

    def __init__(self, window_size: int, *, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after=do_evict_after)
        if window_size < 1:
            raise InvalidInputError(f"TimeEvictor of {window_size} ms", field="evictor", remedy="Give a length of at least 1 ms")
        self._size = window_size

    @staticmethod
    def of(window_size: Length, do_evict_after: bool = False) -> TimeEvictor:
        """Make the evictor."""
        return TimeEvictor(milliseconds(window_size, "length"), do_evict_after=do_evict_after)

    def _kept(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        if elements[0].timestamp is None:
            return elements
        latest = max(each.timestamp for each in elements if each.timestamp is not None)
        return [each for each in elements if each.timestamp is None or each.timestamp > latest - self._size]


class DeltaEvictor(_BeforeOrAfter):
    """Removes the rows whose distance from the last one is a threshold or more."""

    def __init__(self, threshold: float, delta_function: Callable[[Any, Any], float], *, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after=do_evict_after)
        self._threshold = threshold
        self._delta = delta_function

    @staticmethod
    def of(threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False) -> DeltaEvictor:
        """Make the evictor. ``delta_function`` returns the distance of an older row from the last one."""
        return DeltaEvictor(threshold, delta_function, do_evict_after=do_evict_after)

    def _kept(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        last = elements[-1].value
        return [each for each in elements if not self._delta(each.value, last) >= self._threshold]
