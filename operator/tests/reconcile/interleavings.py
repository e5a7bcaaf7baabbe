"""Runs reconciliations one call at a time, in every order: what two of them do at once must come out as if one had gone after the other."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from statefulspark.errors import StatefulSparkError

Reconciliation = Callable[[], Coroutine[Any, Any, Any]]


@types.coroutine
def _turn() -> Iterator[None]:
    yield


async def pause(_: str) -> None:
    """For `MemoryCluster.pause`: hands over before and after each call."""
    await _turn()


class Step:
    """One reconciliation, which runs from call to call."""

    def __init__(self, reconciliation: Reconciliation) -> None:
        self._coroutine = reconciliation()
        self.ended = False
        self.error: StatefulSparkError | None = None

    def next(self) -> None:
        """Run until the next call, or to the end. An error of statefulspark ends it, as it does in the work queue."""
        try:
            self._coroutine.send(None)
        except StopIteration:
            self.ended = True
        except StatefulSparkError as error:
            self.ended, self.error = True, error

    def run(self) -> None:
        """Run to the end."""
        while not self.ended:
            self.next()

    def kill(self) -> None:
        """The process terminates here."""
        self._coroutine.close()
        self.ended = True


def every_order(run: Callable[[Callable[[int], int]], None]) -> int:
    """Calls ``run`` once for every sequence of choices that it makes, and returns how many there were.

    Args:
        run: Does the whole thing from the start. Its argument chooses one of so many.
    """
    given: list[int] = []
    count = 0
    while True:
        choices = _Choices(given)
        run(choices.choose)
        count += 1
        made = choices.made
        while made and made[-1][0] == made[-1][1] - 1:
            made.pop()
        if not made:
            return count
        given = [taken for taken, _ in made[:-1]] + [made[-1][0] + 1]


class _Choices:
    """First those given, then always the first one."""

    def __init__(self, given: list[int]) -> None:
        self._given = given
        self.made: list[tuple[int, int]] = []
        """What was chosen, of how many."""

    def choose(self, options: int) -> int:
        taken = self._given[len(self.made)] if len(self.made) < len(self._given) else 0
        self.made.append((taken, options))
        return taken


def interleave(choose: Callable[[int], int], steps: list[Step], after: Callable[[], None]) -> None:
    """Runs all of ``steps`` to their ends in the order that ``choose`` gives; ``after`` is called after each call."""
    while alive := [step for step in steps if not step.ended]:
        alive[choose(len(alive))].next()
        after()
