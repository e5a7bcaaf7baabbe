"""KeyRowsFunction: a function of the runtime's own that takes the rows and the timers of many keys together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statefulspark.process.api.functions import KeyedProcessFunction

if TYPE_CHECKING:
    from statefulspark.process.api.contexts import ElementContext, TimerContext

__all__ = ["DueTimers", "FiredTimers", "KeyRowsFunction", "KeyedRows", "Visit"]

Visit = tuple[Sequence[Any], Sequence["int | None"]]
"""The rows of a key that stand together, and the event time of each."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """The rows of several keys; valid until the next ones are taken.

    Keys are numbered from 0: key ``n`` has the rows from ``firsts[n]`` up to ``firsts[n + 1]``.

    Attributes:
        rows: Those of these keys, and others.
        times: Event time of each row in milliseconds since the epoch, None without one. Those of a key ascend; the rows without one are first.
        idents: Of the keys.
        firsts: See above.
        distinct: False if a key may be among them twice.
        prefetch: Reads the states of keys, given by their idents, and returns of how many.
        select: Makes a key current, given by its number.
    """

    rows: Sequence[Any]
    times: Sequence[int | None]
    idents: Sequence[bytes]
    firsts: Sequence[int]
    distinct: bool
    prefetch: Callable[[Sequence[bytes]], int]
    select: Callable[[int], None]

    def visits(self) -> Iterator[Visit]:
        """Visit all keys, whose states are read ahead."""
        read = 0
        for number in range(len(self.idents)):
            if number == read:
                read += self.prefetch(self.idents[read:])
            yield self.visit(number)

    def visit(self, number: int) -> Visit:
        """Make a key current and return its rows."""
        self.select(number)
        first, end = self.firsts[number], self.firsts[number + 1]
        return self.rows[first:end], self.times[first:end]


@dataclass(frozen=True, slots=True)
class FiredTimers:
    """Timers that have been removed, in the order in which they fire; valid until the next ones are taken.

    Attributes:
        times: In milliseconds since the epoch.
        idents: Of their keys.
        prefetch: As of `KeyedRows`.
        select: Makes the key of a timer current, given by its number.
    """

    times: Sequence[int]
    idents: Sequence[bytes]
    prefetch: Callable[[Sequence[bytes]], int]
    select: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class DueTimers:
    """The timers that are due, each of which is removed when it is taken. Take them in one of the two ways.

    Attributes:
        one_by_one: Their times in milliseconds since the epoch; the key of the last one is current. Timers that are registered meanwhile come in their places.
        together: Many at a time. Meanwhile, no timer that is due may be registered or deleted.
    """

    one_by_one: Iterator[int]
    together: Iterator[FiredTimers]


class KeyRowsFunction(KeyedProcessFunction):
    """Gets all rows of a key that stand together in a batch in one call, so that state is read and written once for all of them.

    It also gets many keys in one call, so that what is the same for all of them is prepared once.
    """

    def process_keys(self, several: Iterable[KeyedRows], ctx: ElementContext) -> Iterator[Any]:
        """Process rows of several keys, one key after the other, and yield the output rows."""
        for keyed in several:
            for rows, times in keyed.visits():
                yield from self.process_rows(rows, times, ctx)

    def on_timers(self, due: DueTimers, ctx: TimerContext) -> Iterator[Any]:
        """Handle timers, one after the other, and yield the output rows."""
        for timestamp in due.one_by_one:
            yield from self.on_timer(timestamp, ctx) or ()

    def process_rows(self, rows: Sequence[Any], times: Sequence[int | None], ctx: ElementContext) -> Iterable[Any]:
        """Process rows of the current key as `process_element` would process one after the other, which is what this method does.

        Args:
            rows: The rows.
            times: The event time of each in milliseconds since the epoch, None without one.
            ctx: Gets the time of a row before `process_element`.

        Returns:
            Output rows. State is right again after the last one only.
        """
        for row, time in zip(rows, times, strict=True):
            ctx.time = time
            yield from self.process_element(row, ctx) or ()
