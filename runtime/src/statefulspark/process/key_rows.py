"""KeyRowsFunction: a function of the runtime's own that takes the rows of a key together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from statefulspark.process.functions import KeyedProcessFunction

__all__ = ["KeyRowsFunction"]


class KeyRowsFunction(KeyedProcessFunction):
    """Gets all rows of a key that stand together in a batch in one call, so that state is read and written once for all of them."""

    @abstractmethod
    def process_rows(self, rows: Iterable[tuple[Any, int | None]], ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """Process rows of the current key as `process_element` would process one after the other.

        Args:
            rows: Each with its event time in milliseconds since the epoch, None without one. ``ctx.timestamp()`` is that of the last row taken.
            ctx: As in `process_element`.

        Yields:
            Output rows. State is right again after the last one only.
        """
