"""KeyRowsFunction: a function of the runtime's own that takes the rows of a key together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from statefulspark.process.functions import KeyedProcessFunction

if TYPE_CHECKING:
    from statefulspark.process.contexts import ElementContext, TimerContext

__all__ = ["KeyRowsFunction", "Visit"]

Visit = tuple[Sequence[Any], Sequence["int | None"]]
"""The rows of a key that stand together, and the event time of each."""


class KeyRowsFunction(KeyedProcessFunction):
    """Gets all rows of a key that stand together in a batch in one call, so that state is read and written once for all of them.

    It also gets many keys in one call, so that what is the same for all of them is prepared once. Taking the next one makes its key current.
    """

    def process_keys(self, visits: Iterable[Visit], ctx: ElementContext) -> Iterator[Any]:
        """Process rows of several keys, one key after the other, and yield the output rows."""
        for rows, times in visits:
            yield from self.process_rows(rows, times, ctx)

    def on_timers(self, due: Iterable[int], ctx: TimerContext) -> Iterator[Any]:
        """Handle timers, given by their times in milliseconds since the epoch, one after the other, and yield the output rows."""
        for timestamp in due:
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
