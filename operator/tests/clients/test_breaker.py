"""The circuit breaker: slow failures open it for longer and longer, quick ones never, and one success closes it."""

from __future__ import annotations

from statefulspark.errors import UnavailableError
from statefulspark_operator.clients.breaker import Breaker

URL = "http://10.0.0.1:8480"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def fail(breaker: Breaker, clock: Clock, took_s: float, *, url: str = URL) -> bool:
    """Whether a request that fails after ``took_s`` was made at all."""
    made = False
    try:
        with breaker.guarded(url):
            made = True
            clock.now += took_s
            raise TimeoutError
    except (UnavailableError, TimeoutError):
        return made


def test_pauses_grow_up_to_their_bound_and_each_endpoint_has_its_own() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    assert fail(breaker, clock, 5)
    pauses = []
    for _ in range(6):
        assert fail(breaker, clock, 5)
        opened = clock.now
        while not fail(breaker, clock, 0):
            clock.now += 1
        pauses.append(clock.now - opened)
    assert pauses == [5, 10, 20, 30, 30, 30]
    assert fail(breaker, clock, 0, url="http://10.0.0.2:8480")


def test_quick_failures_do_not_count_and_a_success_forgets() -> None:
    """A driver that starts refuses connections, and is looked at as soon as it answers."""
    clock = Clock()
    breaker = Breaker(clock)
    assert all(fail(breaker, clock, 0.01) for _ in range(20))
    fail(breaker, clock, 5)
    with breaker.guarded(URL):
        pass
    assert fail(breaker, clock, 5)
    assert fail(breaker, clock, 5), "the first slow failure after a success closes nothing"
