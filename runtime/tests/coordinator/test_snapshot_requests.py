"""Requests for snapshots that fail again and again: few attempts, and an error that says why."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from statefulspark.coordinator.snapshots import requests as snapshot_requests
from statefulspark.coordinator.snapshots.requests import SnapshotRequest, SnapshotRequests
from statefulspark.errors import UnavailableError


@dataclass
class Clock:
    """Stands still but for sleeps, and for a second per look of a waiting caller."""

    now_s: float = 0.0
    sleeps: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds

    def tick(self) -> None:
        self.now_s += 1.0


class Failing(SnapshotRequests):
    """A job whose disk is full; ``answered`` bounds the requests that get an answer at all."""

    answered = 1_000

    def request(self, savepoint: str | None, *, unpublished: bool = False) -> SnapshotRequest:
        request = super().request(savepoint, unpublished=unpublished)
        if self.answered:
            self.answered -= 1
            self.next()
            request.finish(UnavailableError("slot 1: the local disk cannot be written"))
        return request


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(snapshot_requests, "time", made)
    monkeypatch.setattr(snapshot_requests, "_CHECK_S", 0.001)
    return made


def failing() -> Failing:
    return Failing(threading.RLock(), lambda target: target or "")


def test_attempts_that_fail_are_repeated_with_growing_pauses(clock: Clock) -> None:
    """A stop waits for five minutes: 64 attempts, not 1,500, each of which slots and storage would see."""
    with pytest.raises(UnavailableError, match="the local disk cannot be written"):
        failing().take(None, 300, lambda: None)
    assert clock.sleeps[:6] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert sum(clock.sleeps) == pytest.approx(300)
    assert len(clock.sleeps) < 70


def test_a_wait_that_ends_without_an_answer_says_what_failed_before(clock: Clock) -> None:
    """While a failed query pauses, no batch starts a checkpoint: the reason is that of the attempt before."""
    requests = failing()
    requests.answered = 2
    with pytest.raises(UnavailableError, match=r"within 30 s\. The last attempt failed: slot 1: the local disk cannot be written"):
        requests.take(None, 30, clock.tick)
    assert not requests, "the request is withdrawn"
