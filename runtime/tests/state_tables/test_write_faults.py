"""The fault matrix of commands that write a savepoint: it is whole and right or not there, whatever storage does and wherever the command dies.

The target is a job's folder, so that `statefulspark gc` must be able to tell what is left of a command that has failed.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from runtime.tests.depth import examples, left_to_test_all
from runtime.tests.faulty_calls import KINDS, Faults, KilledError
from runtime.tests.killed_calls import statuses_of_killed

from statefulspark.checkpoint.catalog import OpenStore
from statefulspark.checkpoint.gc.collecting import GcResult, collect_garbage
from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.faults.storage import FaultPlan, FaultyStore
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.local.store import LocalStore
from statefulspark.storage.open import open_store
from statefulspark.storage.retrying import RetryingStore

from .write_faults import COMMANDS, Command, Place

_STEP = examples(3, 1)
"""`make test` takes every third call, which ones depends on the case, and the one that publishes."""
_CASES = [(name, kind) for name in COMMANDS for kind in KINDS]
_QUICK = {("merge", kind) for kind in KINDS} | {("delete-keys", "late"), ("bootstrap", "lost"), ("regroup", "killed"), ("rename", "down")}


def _collected(place: Place, *, dry_run: bool) -> GcResult:
    now_s = time.time() + 30 * 86_400
    return collect_garbage(place.target, open_store=open_store, now_s=now_s, older_than_s=86_400, dry_run=dry_run)


def _check(place: Place, command: Command, before: dict[Path, bytes], known: list[str]) -> list[str]:
    """Nothing is lost, no savepoint is less than whole; returns the new ones."""
    assert place.read_only() == before, "a command has changed what it reads"
    new = [url for url in place.complete() if url not in known]
    for url in new:
        command.check(url)
    found = _collected(place, dry_run=True)
    assert found.missing == {}
    assert not [each.key for each in found.plan.garbage if any(url.endswith(each.key.partition("/")[0]) for url in place.complete())]
    return new


@pytest.mark.parametrize(
    ("name", "kind"), [*(case for case in _CASES if case in _QUICK), *left_to_test_all(case for case in _CASES if case not in _QUICK)]
)
def test_each_call_of_storage(tmp_path: Path, name: str, kind: str) -> None:
    """Each call fails, is answered too late or not at all, or is the last one that the process makes: then the command is repeated."""
    command, place = COMMANDS[name], Place.made(tmp_path)
    before = place.read_only()
    whole = Faults(kind, 0)
    known = [command.run(place, whole.open)]
    assert _check(place, command, before, []) == known
    assert whole.calls > 8
    outcomes = set()
    for at in sorted({*range(1 + len(name + kind) % _STEP, whole.calls, _STEP), whole.calls}):
        faults = Faults(kind, at)
        try:
            url = command.run(place, faults.open)
        except (UnavailableError, InvalidInputError, KilledError) as error:
            url = None
            outcomes.add(type(error))
        for write in faults.late:
            write()
        new = _check(place, command, before, known)
        assert url is None or new == [url]
        assert url is not None or len(new) <= 1
        known += new
    assert outcomes, "no call made a command fail"
    again = command.run(place, open_store)
    assert _check(place, command, before, known) == [again]
    _collected(place, dry_run=False)
    assert not _collected(place, dry_run=True).plan.garbage
    for url in place.complete():
        command.check(url)


@pytest.mark.parametrize("name", COMMANDS)
def test_storage_that_fails_now_and_then(tmp_path: Path, name: str) -> None:
    """Every fifth request fails, times out, loses its reply or is done in half: the command repeats it and succeeds."""
    command, place = COMMANDS[name], Place.made(tmp_path)
    before = place.read_only()
    stores: list[FaultyStore] = []

    def opened(url: str) -> ObjectStore:
        inner = open_store(url)
        assert isinstance(inner, RetryingStore)
        assert isinstance(inner.inner, LocalStore)
        stores.append(FaultyStore(inner.inner, FaultPlan(rate=0.2, seed=len(stores))))
        return RetryingStore(stores[-1], sleep=lambda _: None)

    known: list[str] = []
    # A command makes few requests, and which ones fail depends on the names that it makes: once in many runs, none does.
    while not any(sum(store.injected.values()) for store in stores):
        assert len(known) < 20
        url = command.run(place, opened)
        assert _check(place, command, before, known) == [url]
        known.append(url)


@contextmanager
def _files_up_to(size_bytes: int) -> Iterator[None]:
    """The operating system refuses to let files grow larger, as a quota does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_is_full(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local one or that of storage, at the first file or a later one: the error says so, and once there is room the command succeeds."""
    command, place = COMMANDS[name], Place.made(tmp_path)
    before, failed = place.read_only(), list[str]()
    monkeypatch.setattr("statefulspark.storage.retrying.time.sleep", lambda _: None)
    monkeypatch.setattr("statefulspark.storage.open.RetryingStore", lambda inner: inner)
    for size_bytes in (0, 100, 400, 800, 1600, 2400):
        try:
            with _files_up_to(size_bytes):
                command.run(place, open_store)
        except UnavailableError as error:
            failed.append(str(error))
            assert _check(place, command, before, []) == []
        else:
            break
    assert len(failed) > 2
    assert all(os.strerror(errno.EFBIG) in each for each in failed), failed
    known = place.complete()
    url = command.run(place, open_store)
    assert _check(place, command, before, known) == [url]


def run_command(opener: OpenStore, name: str, folder: str, origin: str, target: str) -> None:
    """Run a command in a process of its own."""
    COMMANDS[name].run(Place(Path(folder), origin, target), opener)


@pytest.mark.parametrize("name", ["merge", *left_to_test_all(each for each in COMMANDS if each != "merge")])
def test_a_process_that_is_killed(tmp_path: Path, name: str) -> None:
    """By SIGKILL before each call of storage: nothing of the product runs after that."""
    command, place = COMMANDS[name], Place.made(tmp_path)
    before = place.read_only()
    whole = Faults("killed", 0)
    known = [command.run(place, whole.open)]
    points = range(whole.calls, 0, -_STEP)
    statuses = statuses_of_killed(run_command, points, name, str(tmp_path), place.origin, place.target)
    assert statuses == [-signal.SIGKILL] * len(points)
    assert _check(place, command, before, known) == [], "only the last call makes a savepoint"
    assert [each.kind for each in _collected(place, dry_run=True).plan.garbage if each.kind == "savepoint file"]
    _collected(place, dry_run=False)
    assert not _collected(place, dry_run=True).plan.garbage
    url = command.run(place, open_store)
    assert _check(place, command, before, known) == [url]
