"""FaultyStore injects what it is told, as often as told, the same again for the same seed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.faults.storage import FaultKind, FaultPlan, FaultyStore, parse_fault_plan
from statefulspark.storage.local.store import LocalStore

WRITING = ["put", "put_if_absent", "put_file", "copy"]


def outcomes(store: FaultyStore, keys: range) -> list[bool]:
    """Which heads were hit."""
    hit = []
    for i in keys:
        try:
            store.head(f"key-{i}")
        except UnavailableError:
            hit.append(True)
        else:
            hit.append(False)
    return hit


@pytest.fixture
def inner(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "store")
    store.put("source", b"old")
    (tmp_path / "file").write_bytes(b"new")
    return store


def operations(store: FaultyStore, folder: Path) -> dict[str, Callable[[], object]]:
    return {
        "put": lambda: store.put("target", b"new"),
        "put_if_absent": lambda: store.put_if_absent("target", b"new"),
        "put_file": lambda: store.put_file("target", folder / "file"),
        "copy": lambda: store.copy("source", "target"),
        "delete": lambda: store.delete(["source"]),
        "get": lambda: store.get("source"),
        "get_file": lambda: store.get_file("source", folder / "down"),
        "head": lambda: store.head("source"),
        "list": lambda: store.list(""),
        "list_folders": lambda: store.list_folders(""),
    }


@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.TIMEOUT, FaultKind.LOST_REPLY, FaultKind.TORN])
def test_every_operation_fails(inner: LocalStore, tmp_path: Path, kind: FaultKind) -> None:
    """At rate 1 each operation fails with an error that says it was injected, and is counted."""
    store = FaultyStore(inner, FaultPlan(rate=1, kinds=(kind,)))
    calls = operations(store, tmp_path)
    for operation, call in calls.items():
        with pytest.raises(UnavailableError, match=f"injected fault {kind.value} in {operation}"):
            call()
    assert store.injected == {kind: len(calls)}


@pytest.mark.parametrize("operation", WRITING)
@pytest.mark.parametrize(("kind", "happens"), [(FaultKind.ERROR, False), (FaultKind.TORN, False), (FaultKind.LOST_REPLY, True)])
def test_what_really_happened(inner: LocalStore, tmp_path: Path, operation: str, kind: FaultKind, happens: bool) -> None:  # parametrized
    """Lost replies happened, errors and torn uploads did not: the target exists or not."""
    store = FaultyStore(inner, FaultPlan(rate=1, kinds=(kind,)))
    with pytest.raises(UnavailableError):
        operations(store, tmp_path)[operation]()
    assert (inner.head("target") is not None) == happens


def test_timeouts_are_ambiguous(inner: LocalStore) -> None:
    """Some happened and some did not; nobody can tell from the error."""
    store = FaultyStore(inner, FaultPlan(rate=1, kinds=(FaultKind.TIMEOUT,)))
    for i in range(50):
        with pytest.raises(UnavailableError):
            store.put(f"many/{i}", b"x")
    assert 10 < len(inner.list("many/")) < 40


def test_torn_delete(inner: LocalStore) -> None:
    """A batch delete that breaks off leaves some keys, as S3 does."""
    for key in ("a", "b"):
        inner.put(key, b"x")
    with pytest.raises(UnavailableError):
        FaultyStore(inner, FaultPlan(rate=1, kinds=(FaultKind.TORN,))).delete(["a", "b"])
    assert [info.key for info in inner.list("")] == ["b", "source"]


def test_latency(inner: LocalStore) -> None:
    """Slow, but right."""
    slept: list[float] = []
    store = FaultyStore(inner, FaultPlan(rate=1, kinds=(FaultKind.LATENCY,), latency_ms=250), sleep=slept.append)
    assert store.get("source") == b"old"
    assert slept == [0.25]
    assert store.injected == {FaultKind.LATENCY: 1}


def test_rate_and_seed(inner: LocalStore) -> None:
    """The share is kept; the same seed gives the same faults in any order, another seed others; repetitions get their own."""
    first = outcomes(FaultyStore(inner, FaultPlan(rate=0.1, seed=1)), range(2000))
    assert 140 < sum(first) < 260
    assert outcomes(FaultyStore(inner, FaultPlan(rate=0.1, seed=1)), range(1999, -1, -1)) == first[::-1]
    assert outcomes(FaultyStore(inner, FaultPlan(rate=0.1, seed=2)), range(2000)) != first
    store = FaultyStore(inner, FaultPlan(rate=0.5, seed=1))
    assert outcomes(store, range(100)) != outcomes(store, range(100))
    assert sum(outcomes(FaultyStore(inner, FaultPlan(rate=0)), range(500))) == 0


def test_pickled_copies_count_anew(inner: LocalStore) -> None:
    """A copy on an executor meets the same faults as the original at its start."""
    store = FaultyStore(inner, FaultPlan(rate=0.5, seed=1))
    first = outcomes(store, range(50))
    again = pickle.loads(pickle.dumps(store))
    assert again.injected == {}
    assert outcomes(again, range(50)) == first


def test_log(inner: LocalStore, tmp_path: Path) -> None:
    """One line per fault, so that a test over many processes can prove that faults happened."""
    store = FaultyStore(inner, FaultPlan(rate=1, kinds=(FaultKind.ERROR,), log=tmp_path / "log"))
    for _ in range(2):
        with pytest.raises(UnavailableError):
            store.get("source")
    assert (tmp_path / "log").read_text() == "error get source\n" * 2


def test_parse() -> None:
    """As documented for the environment."""
    text = "seed=7,rate=0.05,kinds=error|timeout|lost-reply"
    kinds = (FaultKind.ERROR, FaultKind.TIMEOUT, FaultKind.LOST_REPLY)
    assert parse_fault_plan(text) == FaultPlan(seed=7, rate=0.05, kinds=kinds)
    assert parse_fault_plan("rate=1, latency_ms=5, log=/x") == FaultPlan(rate=1, latency_ms=5, log=Path("/x"))


@pytest.mark.parametrize(
    "text", ["", "seed=1", "rate=x", "rate=2", "rate=0.1,kinds=fire", "rate=0.1,kinds=", "rate=0.1,colour=red", "rate"]
)
def test_parse_refuses(text: str) -> None:
    """A plan that does nothing by mistake would make a test worthless."""
    with pytest.raises(InvalidInputError, match="STATEFULSPARK_STORAGE_FAULTS"):
        parse_fault_plan(text)
