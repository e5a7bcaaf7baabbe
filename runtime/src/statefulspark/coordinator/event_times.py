"""Event times: the greatest that each input of each keyed step has had, and the watermarks that follow from them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

__all__ = ["Delays", "EventTimes"]

Delays: TypeAlias = tuple[int | None, ...]
"""Watermark delay of each input of one step, in milliseconds; None for an input without event time."""


class EventTimes:
    """Greatest event times, in milliseconds since the epoch. Those of steps that the job no longer has stay.

    >>> times = EventTimes()
    >>> times.see("joined", 1_000, None)
    >>> times.watermark("joined", (0, 100))
    >>> times.see("joined", 5_000, 3_000)
    >>> times.watermark("joined", (0, 100))
    2900
    """

    def __init__(self) -> None:
        self._inputs: tuple[dict[str, int | None], dict[str, int | None]] = ({}, {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventTimes) and self._inputs == other._inputs

    __hash__ = None  # type: ignore[assignment]  # it changes

    def copy(self) -> EventTimes:
        """Return an independent copy."""
        copied = EventTimes()
        copied.reached(*self._inputs)
        return copied

    def of_input(self, number: int) -> dict[str, int | None]:
        """Return the greatest event time per uid of the first (0) or the second (1) inputs."""
        return dict(self._inputs[number])

    def reached(self, first: Mapping[str, int | None], second: Mapping[str, int | None]) -> None:
        """Take over stored event times per uid, in place of what is known of those uids."""
        for known, stored in zip(self._inputs, (first, second), strict=True):
            known.update(stored)

    def forget_second(self, uids: Iterable[str]) -> None:
        """Forget the event times of second inputs that these steps no longer have."""
        for uid in uids:
            self._inputs[1].pop(uid, None)

    def see(self, uid: str, *latest_ms: int | None) -> None:
        """Take in the latest event time of each input in one batch; None for an input without rows."""
        for known, latest in zip(self._inputs, latest_ms, strict=False):
            if latest is not None:
                before = known.get(uid)
                known[uid] = latest if before is None else max(latest, before)

    def watermark(self, uid: str, delays_ms: Delays) -> int | None:
        """Return the watermark of a step: the smallest of its inputs with event time; None until each of them has had a row."""
        marks: list[int] = []
        for known, delay_ms in zip(self._inputs, delays_ms, strict=False):
            if delay_ms is None:
                continue
            seen = known.get(uid)
            if seen is None:
                return None
            marks.append(seen - delay_ms)
        return min(marks, default=None)
