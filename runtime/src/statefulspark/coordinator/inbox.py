"""Inbox: feeds the core of the coordinator one event at a time.

Its lock is the batch lock. It is held for as long as an event takes, and never while storage is asked or a slot is called: that is done in a step,
which the state names, and whose result is the next event. Locks may be nested in this order: the one with which changelogs are stored,
the batch lock, then those of the slot table and the state registry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from statefulspark.coordinator.core.actions import Action
from statefulspark.coordinator.core.decide import decide
from statefulspark.coordinator.core.events import Event, StepFailed
from statefulspark.coordinator.core.life import Life


class Inbox:
    """Holds the state of the core.

    Attributes:
        lock: Held by those who must see the state and what it is about unchanged.
        life: The state of now.
    """

    def __init__(self, life: Life) -> None:
        self.lock = threading.RLock()
        self.life = life
        self._changed = threading.Condition(self.lock)

    def feed(self, event: Event) -> tuple[Action, ...]:
        """Take in an event and return what must be done."""
        with self.lock:
            self.life, actions = decide(self.life, event)
            self._changed.notify_all()
            return actions

    def wait(self, ready: Callable[[Life], bool], timeout_s: float | None = None) -> bool:
        """Wait for a state. The caller holds the lock, which is left meanwhile. False if it did not come in time."""
        return self._changed.wait_for(lambda: ready(self.life), timeout_s)

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Do the work of a step. If it fails, it is as if the step had not begun."""
        try:
            yield
        except BaseException:
            self.feed(StepFailed(number))
            raise

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """Hold the lock while no step runs."""
        with self.lock:
            self.wait(lambda life: life.step is None)
            yield
