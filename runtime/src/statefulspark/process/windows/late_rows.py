"""LateRow: the row of the side output for late rows."""

from __future__ import annotations

from typing import Any

__all__ = ["LateRow"]


class LateRow:
    """Takes the columns of the stream out of a row, without those that key selectors have computed.

    Args:
        positions: Of the columns.
    """

    def __init__(self, positions: tuple[int, ...]) -> None:
        self._positions = positions

    def __call__(self, row: Any) -> tuple[Any, ...]:
        return tuple(tuple.__getitem__(row, position) for position in self._positions)
