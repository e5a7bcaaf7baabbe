"""Event times: the greatest that each input of each keyed step has had, the inputs that are silent, and the watermarks that follow. Pure.

Of an input with ``watermark_by`` they are known by value of its columns, and each value counts as an input of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

from statefulspark.process.rows.value_times import NO_VALUES, InputValueTimes, ValueTimes, columns_of_value

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
        self._by_value: tuple[dict[str, ValueTimes], dict[str, ValueTimes]] = ({}, {})
        self._values_active_ms: tuple[dict[str, ValueTimes], dict[str, ValueTimes]] = ({}, {})
        """As ``_active_ms``, by uid and value."""
        self._awaited: set[str] = set()
        """Steps whose inputs are watched since then."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventTimes) and (self._inputs, self._by_value) == (other._inputs, other._by_value)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def copy(self) -> EventTimes:
        """Return an independent copy."""
        copied = EventTimes()
        copied.reached(*self._inputs)
        copied.reached_by_value(self.by_value())
        for mine, known in zip(copied._active_ms, self._active_ms, strict=True):
            mine.update(known)
        for values, known_values in zip(copied._values_active_ms, self._values_active_ms, strict=True):
            values.update({uid: dict(active) for uid, active in known_values.items()})
        copied._awaited |= self._awaited
        return copied

    def of_input(self, number: int) -> dict[str, int | None]:
        """Return the greatest event time per uid of the first (0) or the second (1) inputs."""
        return dict(self._inputs[number])

    def by_value(self) -> dict[str, InputValueTimes]:
        """Return the greatest event times by value of each input, per uid of a step that has had any."""
        first, second = self._by_value
        return {uid: (dict(first.get(uid, {})), dict(second.get(uid, {}))) for uid in sorted(first.keys() | second.keys())}

    def values(self, uid: str, number: int) -> AbstractSet[str]:
        """Return the values that the first (0) or the second (1) input of a step has had."""
        return self._by_value[number].get(uid, {}).keys()

    def reached_by_value(self, stored: Mapping[str, InputValueTimes]) -> None:
        """Take over stored event times by value per uid, in place of what is known of those uids."""
        for uid, inputs in stored.items():
            for known, times in zip(self._by_value, inputs, strict=True):
                known.pop(uid, None)
                if times:
                    known[uid] = dict(times)

    def forget_other_values(self, uid: str, columns: Sequence[tuple[str, ...]]) -> None:
        """Forget the values of columns by which the inputs of a step no longer are known."""
        for known, wanted in zip(self._by_value, (*columns, (), ())[:2], strict=True):
            kept = {value: latest for value, latest in known.pop(uid, {}).items() if columns_of_value(value) == wanted}
            if kept:
                known[uid] = kept

    def reached(self, first: Mapping[str, int | None], second: Mapping[str, int | None]) -> None:
        """Take over stored event times per uid, in place of what is known of those uids."""
        for known, stored in zip(self._inputs, (first, second), strict=True):
            known.update(stored)

    def forget_second(self, uids: Iterable[str]) -> None:
        """Forget the event times of second inputs that these steps no longer have."""
        for uid in uids:
            self._inputs[1].pop(uid, None)

    def see(self, uid: str, *latest_ms: int | None, by_value: InputValueTimes = NO_VALUES, processed_ms: int = 0) -> None:
        """Take in the latest event time of each input in a batch of this processing time, None for an input without rows; and those by value."""
        for values, active, times in zip(self._by_value, self._values_active_ms, by_value, strict=True):
            if times:
                old = values.setdefault(uid, {})
                old.update({value: max(latest, old.get(value, latest)) for value, latest in times.items()})
                active.setdefault(uid, {}).update(dict.fromkeys(times, processed_ms))
        for known, active_ms, latest in zip(self._inputs, self._active_ms, latest_ms, strict=False):
            if latest is not None:
                before = known.get(uid)
                known[uid] = latest if before is None else max(latest, before)
                active_ms[uid] = processed_ms

    def await_rows(self, uid: str, processed_ms: int) -> None:
        """Let the inputs of a step count as silent from here on, if this is the first new batch of the driver: how long they were before is unknown."""
        if uid not in self._awaited:
            self._awaited.add(uid)
            for active_ms, values, active in zip(self._active_ms, self._by_value, self._values_active_ms, strict=True):
                active_ms[uid] = processed_ms
                active[uid] = dict.fromkeys(values.get(uid, ()), processed_ms)

    def marks(self, uid: str, delays_ms: Delays, *, idle_after_ms: int | None = None, until_ms: int | None = None) -> list[Mark]:
        """Return the marks of a step's inputs with event time, or of their values.

        Args:
            uid: The step.
            delays_ms: Of its inputs.
            idle_after_ms: An input, or a value, is idle if it has had no rows for so long; None if it never is.
            until_ms: Time up to which the inputs are known to have had no other rows; None if there is none.
        """

        def is_idle(active_ms: int | None) -> bool:
            return idle_after_ms is not None and until_ms is not None and active_ms is not None and until_ms - active_ms >= idle_after_ms

        marks: list[Mark] = []
        for number, delay_ms in enumerate(delays_ms):
            if delay_ms is None:
                continue
            times, active = self._by_value[number].get(uid), self._values_active_ms[number].get(uid, {})
            if times:
                marks += [Mark(latest - delay_ms, is_idle(active.get(value))) for value, latest in times.items()]
                continue
            seen = self._inputs[number].get(uid)
            marks.append(Mark(None if seen is None else seen - delay_ms, is_idle(self._active_ms[number].get(uid))))
        return marks
