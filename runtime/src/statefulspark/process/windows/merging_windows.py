"""MergingWindows: the sessions of a key that are in flight, and the window under which each keeps its contents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from statefulspark.process.functions import RuntimeContext
from statefulspark.process.windows.assigners import MergingWindowAssigner
from statefulspark.process.windows.window_states import BYTES
from statefulspark.process.windows.windows import TimeWindow, TimeWindowSerializer
from statefulspark.state.api.descriptors import ValueStateDescriptor

__all__ = ["MergingWindows"]

_SERIALIZER: Final = TimeWindowSerializer()
_WIDTH: Final = TimeWindowSerializer.width

OnMerge = Callable[[TimeWindow, list[TimeWindow], TimeWindow, list[TimeWindow]], None]
"""Takes the new window, the merged ones, the window that keeps the contents, and those whose contents move there."""


class MergingWindows(MergingWindowAssigner.MergeCallback):
    """The windows of the current key.

    Contents stay where they are when a window grows: they are kept under the window that was there first, its state window.

    Args:
        context: Of the step.
        scope: Kinds of windows and contents, part of the name of the state.
        assigner: Merges the windows.
    """

    def __init__(self, context: RuntimeContext, scope: str, assigner: MergingWindowAssigner) -> None:
        self._assigner = assigner
        self._state = context.get_state(ValueStateDescriptor(f"_merging_windows({scope})", BYTES))
        self._state_windows: dict[TimeWindow, TimeWindow] = {}
        self._merged: list[tuple[TimeWindow, list[TimeWindow]]] = []

    def load(self) -> None:
        """Read the windows of the current key."""
        data: bytes = self._state.value() or b""
        self._state_windows = {
            _SERIALIZER.deserialize(data[at : at + _WIDTH]): _SERIALIZER.deserialize(data[at + _WIDTH : at + 2 * _WIDTH])
            for at in range(0, len(data), 2 * _WIDTH)
        }

    def save(self) -> None:
        """Write the windows of the current key."""
        parts = [_SERIALIZER.serialize(each) for pair in sorted(self._state_windows.items()) for each in pair]
        data = b"".join(parts)
        if data != (self._state.value() or b""):
            self._state.update(data or None)

    def in_flight(self) -> list[TimeWindow]:
        """Return the windows of the current key."""
        return list(self._state_windows)

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
        self._assigner.merge_windows([*state_windows, window], self)
        result = window
        for merge_result, merged in self._merged:
            in_flight = sorted({each for each in merged if each in state_windows})
            if window in merged:
                result = merge_result
            if not in_flight or in_flight == [merge_result]:
                continue
            kept, *moved = [state_windows.pop(each) for each in in_flight]
            state_windows[merge_result] = kept
            on_merge(merge_result, in_flight, kept, moved)
        state_windows.setdefault(result, result)
        return result

    def retire(self, window: TimeWindow) -> None:
        """Forget a window."""
        self._state_windows.pop(window, None)
