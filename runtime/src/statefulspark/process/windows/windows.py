"""The kinds of windows, and how their bytes are made: state is kept per key and window."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.state.timers import TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN

if TYPE_CHECKING:
    from statefulspark.process.windows.assigners import MergingWindowAssigner

__all__ = ["CountWindow", "CountWindowSerializer", "GlobalWindow", "GlobalWindowSerializer", "TimeWindow", "TimeWindowSerializer", "Window"]

_SIGN: Final = 1 << 63
_TIME: Final = struct.Struct(">QQ")
_COUNT: Final = struct.Struct(">Q")


class Window(ABC):
    """A group of rows of one key: a `TimeWindow`, a `CountWindow` or the `GlobalWindow`."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the largest timestamp that still belongs to the window, in milliseconds since the epoch."""


@dataclass(frozen=True, order=True, slots=True, init=False)
class TimeWindow(Window):
    """The rows from ``start`` up to ``end``, exclusive.

    >>> TimeWindow(0, 60_000).max_timestamp()
    59999

    Args:
        start: Milliseconds since the epoch.
        end: Milliseconds since the epoch, more than ``start``.
    """

    start: int
    end: int

    def __init__(self, start: int, end: int) -> None:
        # One for each result of a window. The dataclass's own takes twice as long.
        _set_start(self, start)
        _set_end(self, end)

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return True if the windows overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the window of ``window_size`` milliseconds that contains ``timestamp``.

        >>> TimeWindow.get_window_start_with_offset(-1, 0, 60_000)
        -60000
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback) -> None:
        """Call ``callback`` for each set of windows that overlap or touch."""
        merged: list[tuple[TimeWindow, list[TimeWindow]]] = []
        for window in sorted(windows):
            if merged and merged[-1][0].intersects(window):
                cover, parts = merged.pop()
                merged.append((cover.cover(window), [*parts, window]))
            else:
                merged.append((window, [window]))
        for cover, parts in merged:
            if len(parts) > 1:
                callback.merge(parts, cover)


_set_start = vars(TimeWindow)["start"].__set__
_set_end = vars(TimeWindow)["end"].__set__


@dataclass(frozen=True, order=True, slots=True)
class CountWindow(Window):
    """A window of a number of rows. ``id`` counts the windows of a key from 0."""

    id: int

    def max_timestamp(self) -> int:
        return TIMESTAMP_MS_MAX


@dataclass(frozen=True, order=True, slots=True)
class GlobalWindow(Window):
    """The one window of all rows of a key."""

    @staticmethod
    def get() -> GlobalWindow:
        """Return the window."""
        return GlobalWindow()

    def max_timestamp(self) -> int:
        return TIMESTAMP_MS_MAX


class WindowSerializer(ABC):
    """The bytes of windows of one kind. They have a fixed width and the order of the windows."""

    width: ClassVar[int]
    """Bytes of a window."""
    window_class: ClassVar[type[Window]]

    @abstractmethod
    def serialize(self, element: Window) -> bytes:
        """Return the bytes of a window.

        Raises:
            InvalidInputError: It is a window of another kind, or out of bounds.
        """

    @abstractmethod
    def deserialize(self, data: bytes) -> Window:
        """Return the window of the bytes."""

    def _wrong(self, element: object) -> InvalidInputError:
        return InvalidInputError(
            f"assign_windows returned {type_name(type(element))}", field="window", remedy=f"Return {self.window_class.__name__}s"
        )


class TimeWindowSerializer(WindowSerializer):
    """Start and end, 64 bits each, with the sign bits flipped."""

    width = 16
    window_class = TimeWindow

    def serialize(self, element: Window) -> bytes:
        if element.__class__ is not TimeWindow:
            raise self._wrong(element)
        if not TIMESTAMP_MS_MIN <= element.start < element.end <= TIMESTAMP_MS_MAX:
            raise InvalidInputError(
                "a window does not start before it ends, within 64 bits of milliseconds",
                field="window",
                remedy="Filter rows with such event times before key_by, or correct the window's size or your assign_windows",
            )
        return _TIME.pack(element.start + _SIGN, element.end + _SIGN)

    def deserialize(self, data: bytes) -> TimeWindow:
        start, end = _TIME.unpack(data)
        return TimeWindow(start - _SIGN, end - _SIGN)


class CountWindowSerializer(WindowSerializer):
    """The id, 64 bits, with the sign bit flipped."""

    width = 8
    window_class = CountWindow

    def serialize(self, element: Window) -> bytes:
        if element.__class__ is not CountWindow:
            raise self._wrong(element)
        return _COUNT.pack(element.id + _SIGN)

    def deserialize(self, data: bytes) -> CountWindow:
        return CountWindow(_COUNT.unpack(data)[0] - _SIGN)


class GlobalWindowSerializer(WindowSerializer):
    """No bytes."""

    width = 0
    window_class = GlobalWindow

    def serialize(self, element: Window) -> bytes:
        if element.__class__ is not GlobalWindow:
            raise self._wrong(element)
        return b""

    def deserialize(self, data: bytes) -> GlobalWindow:
        del data
        return GlobalWindow()
