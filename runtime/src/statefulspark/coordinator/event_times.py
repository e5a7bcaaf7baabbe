"""Event times: the greatest that each input of each keyed step has had, the inputs that are silent, and the watermarks that follow. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

__all__ = ["Delays", "EventTimes", "Mark", "watermark_of"]

Delays: TypeAlias = tuple[int | None, ...]
"""Watermark delay of each input of one step, in milliseconds; None for an input without event time."""


class Mark(NamedTuple):
    """Bound of a step's watermark: of an input, or of a step before it."""

    at_ms: int | None
    """None before the first row."""
    idle: bool = False
    """True if it holds the watermark no more."""


def watermark_of(marks: Iterable[Mark]) -> int | None:
    """Return the smallest of those that are not idle, None if one of them is missing; the greatest if all are idle, as Flink does.

    >>> watermark_of([Mark(50), Mark(90)]), watermark_of([Mark(None), Mark(90)])
    (50, None)
    >>> watermark_of([Mark(50, idle=True), Mark(90)]), watermark_of([Mark(50, idle=True), Mark(None, idle=True)])
    (90, 50)
    """
    every = list(marks)
    awake = [mark.at_ms for mark in every if not mark.idle]
    if None in awake:
        return None
    if awake:
        return min(at_ms for at_ms in awake if at_ms is not None)
    return max((mark.at_ms for mark in every if mark.at_ms is not None), default=None)


class EventTimes:
    """Greatest event times, in milliseconds since the epoch. Those of steps that the job no longer has stay.

    >>> times = EventTimes()
    >>> times.see("joined", 1_000, None)
    >>> watermark_of(times.marks("joined", (0, 100)))
    >>> times.see("joined", 5_000, 3_000)
    >>> watermark_of(times.marks("joined", (0, 100)))
    2900
    """

    def __init__(self) -> None:
        self._inputs: tuple[dict[str, int | None], dict[str, int | None]] = ({}, {})
        self._active_ms: tuple[dict[str, int], dict[str, int]] = ({}, {})
        """Processing time of the last batch in which the input had rows, or of the first new one of this driver."""
        self._awaited: set[str] = set()
        """Steps whose inputs are watched since then."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventTimes) and self._inputs == other._inputs

    __hash__ = None  # type: ignore[assignment]  # it changes

    def copy(self) -> EventTimes:
        """Return an independent copy."""
        copied = EventTimes()
        copied.reached(*self._inputs)
        for mine, known in zip(copied._active_ms, self._active_ms, strict=True):
            mine.update(known)
        copied._awaited |= self._awaited
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

    def see(self, uid: str, *latest_ms: int | None, processed_ms: int = 0) -> None:
        """Take in the latest event time of each input in a batch of this processing time; None for an input without rows."""
        for known, active_ms, latest in zip(self._inputs, self._active_ms, latest_ms, strict=False):
            if latest is not None:
                before = known.get(uid)
                known[uid] = latest if before is None else max(latest, before)
                active_ms[uid] = processed_ms

    def await_rows(self, uid: str, processed_ms: int) -> None:
        """Let the inputs of a step count as silent from here on, if this is the first new batch of the driver: how long they were before is unknown."""
        if uid not in self._awaited:
            self._awaited.add(uid)
            for active_ms in self._active_ms:
                active_ms[uid] = processed_ms

    def marks(self, uid: str, delays_ms: Delays, *, idle_after_ms: int | None = None, until_ms: int | None = None) -> list[Mark]:
        """Return the marks of a step's inputs with event time.

        Args:
            uid: The step.
            delays_ms: Of its inputs.
            idle_after_ms: An input is idle if it has had no rows for so long; None if it never is.
            until_ms: Time up to which the inputs are known to have had no other rows; None if there is none.
        """
        marks: list[Mark] = []
        for known, active_ms, delay_ms in zip(self._inputs, self._active_ms, delays_ms, strict=False):
            if delay_ms is None:
                continue
            seen, active = known.get(uid), active_ms.get(uid)
            idle = idle_after_ms is not None and until_ms is not None and active is not None and until_ms - active >= idle_after_ms
            marks.append(Mark(None if seen is None else seen - delay_ms, idle))
        return marks
