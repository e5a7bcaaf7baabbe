"""RetryingStore against a scripted store and a clock that only moves when somebody sleeps."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from statefulspark.errors import ClosedError, ConflictError, CorruptDataError, InvalidInputError, UnavailableError
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.local.store import LocalStore
from statefulspark.storage.retrying import RetryingStore, RetryPolicy


@dataclass
class VirtualTime:
    """Seconds that pass by sleeping, and by what operations take."""

    now_s: float = 1000.0
    sleeps: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds

    def clock(self) -> float:
        return self.now_s


class Scripted(LocalStore):
    """A local store whose ``put``, ``get`` and ``delete`` first raise what the script says."""

    script: Iterator[Exception]
    time: VirtualTime
    takes_s: float

    def _next(self) -> None:
        self.time.now_s += self.takes_s
        for failure in self.script:
            raise failure

    def put(self, key: str, data: bytes) -> None:
        self._next()
        super().put(key, data)

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        self._next()
        super().put_file(key, path, cancellation)

    def get(self, key: str) -> bytes:
        self._next()
        return super().get(key)

    def delete(self, keys: object) -> None:
        assert isinstance(keys, list)
        self._next()
        super().delete(keys)


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


def scripted(path: Path, time: VirtualTime, failures: list[Exception], takes_s: float = 0.0) -> Scripted:
    store = Scripted(path)
    # The dataclass is frozen; what a test adds is not part of it.
    for name, value in {"script": iter(failures), "time": time, "takes_s": takes_s}.items():
        object.__setattr__(store, name, value)
    return store


def test_transient_failures_are_hidden(tmp_path: Path, time: VirtualTime) -> None:
    """Waits grow up to their bound, each with a bounded random part."""
    store = RetryingStore(
        scripted(tmp_path, time, [UnavailableError("busy")] * 9), RetryPolicy(wait_s_first=0.1, wait_s_max=2), time.sleep, time.clock
    )
    store.put("a", b"x")
    assert store.get("a") == b"x"
    assert len(time.sleeps) == 9
    for i, slept_s in enumerate(time.sleeps):
        least_s = min(0.1 * 2**i, 2)
        assert least_s <= slept_s <= least_s + 0.1
    assert len({round(slept_s % 0.1, 6) for slept_s in time.sleeps}) > 1


@pytest.mark.parametrize("takes_s", [0.0, 7.0, 100.0])
def test_time_is_bounded(tmp_path: Path, time: VirtualTime, takes_s: float) -> None:
    """No attempt starts after the budget, however long each takes; the error tells attempts and cause."""
    start_s = time.now_s
    store = RetryingStore(
        scripted(tmp_path, time, [UnavailableError("busy")] * 10_000, takes_s), RetryPolicy(budget_s=30), time.sleep, time.clock
    )
    with pytest.raises(UnavailableError, match=r"busy; gave up get after \d+ attempts") as caught:
        store.get("a")
    assert time.now_s - start_s <= 30 + takes_s
    assert isinstance(caught.value.__cause__, UnavailableError)
    assert str(caught.value.__cause__) == "busy"
    assert len(time.sleeps) >= {0.0: 5, 7.0: 3, 100.0: 0}[takes_s]


def test_no_budget_means_one_attempt(tmp_path: Path, time: VirtualTime) -> None:
    """``within`` changes only the budget."""
    store = RetryingStore(scripted(tmp_path, time, [UnavailableError("busy")]), RetryPolicy(wait_s_max=3), time.sleep, time.clock).within(0)
    with pytest.raises(UnavailableError, match="after 1 attempts"):
        store.get("a")
    assert time.sleeps == []
    assert store.policy == RetryPolicy(budget_s=0, wait_s_max=3)


@pytest.mark.parametrize(
    "failure", [ConflictError("lost"), InvalidInputError("no"), CorruptDataError("bad", path="a"), KeyError("a"), ZeroDivisionError()]
)
def test_decided_failures_pass_at_once(tmp_path: Path, time: VirtualTime, failure: Exception) -> None:
    """Only what may change by waiting is repeated."""
    store = RetryingStore(scripted(tmp_path, time, [failure]), RetryPolicy(), time.sleep, time.clock)
    with pytest.raises(type(failure)) as caught:
        store.get("a")
    assert caught.value is failure
    assert time.sleeps == []


def test_a_canceled_upload_is_not_repeated(tmp_path: Path, time: VirtualTime) -> None:
    """And nobody waits for its next attempt."""
    (tmp_path / "source").write_bytes(b"x")
    cancellation = Cancellation("canceled")
    waits: list[float] = []
    wait = cancellation._canceled.wait

    def cancel_while_waiting(timeout: float | None = None) -> bool:
        waits.append(timeout or 0.0)
        cancellation.cancel()
        return wait(timeout)

    cancellation._canceled.wait = cancel_while_waiting  # type: ignore[method-assign]  # an hour would pass otherwise
    failures: list[Exception] = [UnavailableError("busy")] * 3
    policy = RetryPolicy(budget_s=1e6, wait_s_first=3600, wait_s_max=3600)
    store = RetryingStore(scripted(tmp_path / "store", time, failures), policy, time.sleep, time.clock)
    with pytest.raises(ClosedError, match="canceled"):
        store.put_file("a", tmp_path / "source", cancellation)
    assert len(waits) == 1
    assert time.sleeps == []


def test_iterators_survive_a_repetition(tmp_path: Path, time: VirtualTime) -> None:
    """Keys given as an iterator are deleted by the second attempt too."""
    LocalStore(tmp_path).put("a", b"x")
    store = RetryingStore(scripted(tmp_path, time, [UnavailableError("busy")]), RetryPolicy(), time.sleep, time.clock)
    store.delete(iter(["a"]))
    assert store.list("") == []
    assert len(time.sleeps) == 1


@pytest.mark.parametrize("bad", [{"budget_s": -1.0}, {"wait_s_first": 0.0}, {"wait_s_max": 0.01}])
def test_policy_bounds(bad: dict[str, float]) -> None:
    """Values that would never wait or never stop."""
    with pytest.raises(InvalidInputError, match="bounds"):
        RetryPolicy(**bad)


def test_pickle(tmp_path: Path) -> None:
    """The policy travels along."""
    store = RetryingStore(LocalStore(tmp_path), RetryPolicy(budget_s=7))
    assert pickle.loads(pickle.dumps(store)) == store
