"""MergingWindows: the sessions of a key that are in flight, and the window under which each keeps its contents."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, cast

from statefulspark.process.api.functions import RuntimeContext
from statefulspark.process.windows.assigners import MergingWindowAssigner
from statefulspark.process.windows.session_assigners import merges_touching_windows
from statefulspark.process.windows.window_states import BYTES
from statefulspark.process.windows.windows import TimeWindow, TimeWindowSerializer
from statefulspark.state.api.descriptors import ValueStateDescriptor
from statefulspark.state.api.names import RuntimeName
from statefulspark.state.tables.value import KeyedValueState

__all__ = ["MergingWindows", "merging_windows_state"]

_SERIALIZER: Final = TimeWindowSerializer()
_WIDTH: Final = TimeWindowSerializer.width
_PAIR: Final = 2 * _WIDTH

OnMerge = Callable[[TimeWindow, list[TimeWindow], TimeWindow, list[TimeWindow]], None]
"""Takes the new window, the merged ones, the window that keeps the contents, and those whose contents move there."""


def merging_windows_state(context: RuntimeContext, scope: str) -> KeyedValueState:
    """Return the state with the windows of the current key: pairs of a window's bytes and those of its state window, in order."""
    return cast("KeyedValueState", context.get_state(ValueStateDescriptor(RuntimeName(f"_merging_windows({scope})"), BYTES)))


class MergingWindows(MergingWindowAssigner.MergeCallback):
    """The windows of the current key.

    Contents stay where they are when a window grows: they are kept under the window that was there first, its state window.

    The windows of the key that was loaded last stay decoded, beside their bytes, in which a changed window is replaced in place. So a row costs
    the same, but for one copy of the bytes, however many windows the key has. They count only for a stored value that equals those bytes.

    Args:
        context: Of the step.
        scope: Kinds of windows and contents, part of the name of the state.
        assigner: Merges the windows.
    """

    def __init__(self, context: RuntimeContext, scope: str, assigner: MergingWindowAssigner) -> None:
        self._assigner = assigner
        self._merges_touching = merges_touching_windows(assigner)
        self._state = merging_windows_state(context, scope)
        self._windows: list[TimeWindow] = []
        """In order."""
        self._state_windows: dict[TimeWindow, TimeWindow] = {}
        self._encoded = bytearray()
        """A pair of window and state window for each, in the order of the windows."""
        self._stored = b""
        """The value of the state that the windows were last equal to."""
        self._is_changed = False
        self._apart = True
        """False if some windows may touch others, which another assigner has left so."""
        self._merged: list[tuple[TimeWindow, list[TimeWindow]]] = []

    def load(self) -> bool:
        """Read the windows of the current key.

        Returns:
            False if they are those of the last call, with what has been added and retired since.
        """
        data: bytes = self._state.value() or b""
        if data == self._stored and not self._is_changed:
            return False
        self._state_windows = {
            _SERIALIZER.deserialize(data[at : at + _WIDTH]): _SERIALIZER.deserialize(data[at + _WIDTH : at + _PAIR])
            for at in range(0, len(data), _PAIR)
        }
        self._windows = list(self._state_windows)
        self._apart = all(before.end < after.start for before, after in pairwise(self._windows))
        self._encoded = bytearray(data)
        self._stored = data
        self._is_changed = False
        return True

    def save(self) -> None:
        """Write the windows of the current key, if they have changed."""
        if not self._is_changed:
            return
        data = bytes(self._encoded)
        if data != (self._state.value() or b""):
            self._state.update(data or None)
        self._stored = data
        self._is_changed = False

    def in_flight(self) -> list[TimeWindow]:
        """Return the windows of the current key."""
        return self._windows[:]

    def state_window(self, window: TimeWindow) -> TimeWindow | None:
        """Return the window under which the contents of a window in flight are kept; None if it is not in flight."""
        return self._state_windows.get(window)

    def merge(self, to_be_merged: Iterable[TimeWindow], merge_result: TimeWindow) -> None:
        """Note what the assigner merges."""
        self._merged.append((merge_result, list(to_be_merged)))

    def add(self, window: TimeWindow, on_merge: OnMerge) -> TimeWindow:
        """Add a window of a row, and merge it with those in flight.

        Returns:
            The window in flight that the row belongs to.
        """
        state_windows = self._state_windows
        self._merged = []
        # Of windows that do not touch each other, those that touch a new one are all that merge.
        candidates = self._touching(window) if self._merges_touching and self._apart else self._windows
        self._assigner.merge_windows([*candidates, window], self)
        result = window
        for merge_result, merged in self._merged:
            in_flight = sorted({each for each in merged if each in state_windows})
            if window in merged:
                result = merge_result
            if not in_flight or in_flight == [merge_result]:
                continue
            kept, *moved = [self._remove(each) for each in in_flight]
            self._put(merge_result, kept)
            on_merge(merge_result, in_flight, kept, moved)
        if result not in state_windows:
            self._put(result, result)
        self._apart = self._merges_touching
        return result

    def retire(self, window: TimeWindow) -> None:
        """Forget a window."""
        if window in self._state_windows:
            self._remove(window)

    def _touching(self, window: TimeWindow) -> list[TimeWindow]:
        """Return the windows in flight, none of which touches another, that overlap or touch ``window``."""
        windows = self._windows
        last = first = bisect_left(windows, window)
        if first and windows[first - 1].intersects(window):
            first -= 1
        while last < len(windows) and windows[last].intersects(window):
            last += 1
        return windows[first:last]

    def _put(self, window: TimeWindow, kept: TimeWindow) -> None:
        at = bisect_left(self._windows, window)
        known = window in self._state_windows
        if not known:
            self._windows.insert(at, window)
        self._state_windows[window] = kept
        self._encoded[at * _PAIR : (at + known) * _PAIR] = _SERIALIZER.serialize(window) + _SERIALIZER.serialize(kept)
        self._is_changed = True

    def _remove(self, window: TimeWindow) -> TimeWindow:
        at = bisect_left(self._windows, window)
        del self._windows[at]
        del self._encoded[at * _PAIR : (at + 1) * _PAIR]
        self._is_changed = True
        return self._state_windows.pop(window)
