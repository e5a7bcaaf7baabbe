"""Waiting that ends when nothing moves any more, not when a clock says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from statefulspark.coordinator.query.lifecycle import QueryLifecycle
from statefulspark.coordinator.waiting import while_it_moves
from statefulspark.errors import ConflictError, UnavailableError
from statefulspark.job.ending.draining import Draining


def test_an_attempt_that_is_late_is_repeated_while_something_moves() -> None:
    """Ten attempts are over before the upload is; another error ends it at once."""
    uploaded, attempts = 0, 0

    def attempt() -> str:
        nonlocal uploaded, attempts
        attempts += 1
        uploaded += 5
        if uploaded < 50:
            raise UnavailableError("no checkpoint completed within 60 s")
        return "done"

    assert (while_it_moves(attempt, lambda: uploaded), attempts) == ("done", 10)

    def refused() -> None:
        nonlocal uploaded
        uploaded += 5
        raise ConflictError("a rescale is in progress")

    with pytest.raises(ConflictError):
        while_it_moves(refused, lambda: uploaded)


def test_the_first_attempt_in_which_nothing_moves_is_the_last() -> None:
    """Storage does not answer."""
    attempts, positions = 0, iter([0, 1, 1, 1])

    def attempt() -> None:
        nonlocal attempts
        attempts += 1
        raise UnavailableError("s3://b does not answer")

    with pytest.raises(UnavailableError, match="does not answer"):
        while_it_moves(attempt, lambda: next(positions))
    assert attempts == 2


class Lifecycle:
    """Of a query that needs so many looks at a clock that jumps by a minute until all timers have fired."""

    def __init__(self, looks: int) -> None:
        self.draining = False
        self.looks = looks

    def drain(self, *, on: bool = True) -> None:
        """See `QueryLifecycle`."""
        self.draining = on

    def idle(self) -> bool:
        """See `QueryLifecycle`."""
        self.looks -= 1
        return self.looks <= 0


def test_an_idle_job_is_drained_however_long_its_timers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour and more; a command has its own time limit."""
    clock = iter(range(0, 60_000, 60))
    fake = SimpleNamespace(monotonic=lambda: float(next(clock)), sleep=lambda _: None)
    monkeypatch.setattr("statefulspark.coordinator.waiting.time", fake)
    Draining(cast("QueryLifecycle", Lifecycle(90)), when_idle=True, check_open=lambda: None).drain()
    with pytest.raises(UnavailableError, match="not drained within 600 s"):
        Draining(cast("QueryLifecycle", Lifecycle(90)), when_idle=False, check_open=lambda: None).drain(600)
