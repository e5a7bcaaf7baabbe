"""Canonical savepoints of a running job: complete and published, or nothing; batches go on meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from runtime.tests.depth import left_to_test_all
from runtime.tests.faulty_calls import Faults

from statefulspark.checkpoint.catalog import StoredCheckpoint, list_checkpoints, open_checkpoint
from statefulspark.checkpoint.gc.collecting import GcResult, collect_garbage
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.snapshots import canonical as canonical_savepoints
from statefulspark.coordinator.snapshots import conversion
from statefulspark.coordinator.snapshots.conversion import convert
from statefulspark.errors import ClosedError, CorruptDataError, FencedError, InvalidInputError, UnavailableError
from statefulspark.state_tables.canonical.conversion import Publication
from statefulspark.storage.open import open_store

from .conftest import Start
from .test_lives import rows_of
from .world import UID, Died, Driver, World, poll_until

_CHILD_POINTS = ("conversion.begun", "conversion.part", "conversion.part:2", "conversion.part:3", "conversion.written")


class Taking:
    """Takes a canonical savepoint in another thread, as the driver's API does."""

    def __init__(self, driver: Driver, target: Path, timeout_s: float = 120.0) -> None:
        self.outcome: list[CheckpointInfo | BaseException] = []
        self._driver = driver

        def take() -> None:
            try:
                self.outcome.append(driver.coordinator.canonical.take(target.as_uri(), timeout_s, lambda: None))
            except BaseException as error:
                self.outcome.append(error)

        self._thread = threading.Thread(target=take)
        self._thread.start()

    def result(self) -> CheckpointInfo | BaseException:
        poll_until(lambda: bool(self.outcome), self._driver)
        return self.ended()

    def ended(self) -> CheckpointInfo | BaseException:
        self._thread.join()
        return self.outcome[0]

    def info(self) -> CheckpointInfo:
        result = self.result()
        assert isinstance(result, CheckpointInfo), repr(result)
        return result


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Process ids of the converting processes so far; none of them may be left."""
    started: list[int] = []
    begin = conversion._started

    def noted(folder: Path, requests: int) -> Any:
        process = begin(folder, requests)
        started.append(process.pid)
        return process

    monkeypatch.setattr(conversion, "_started", noted)
    yield started
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def _has_more(pids: list[int], number: int) -> bool:
    return len(pids) > number


def _run(driver: Driver) -> None:
    batch = driver.plan(9)
    assert batch is not None
    driver.run(batch)


def _state(url: str) -> dict[str, list[Any]]:
    return {
        name: sorted((entry.key, entry.value) for entry in read_state(url, UID, name))
        for name in ("number", "last", "recent", "event-timers")
    }


def _begun(world: World, start: Start) -> Driver:
    world.input = rows_of(Random(7))
    driver = start(2)
    _run(driver)
    return driver


def _garbage(world: World) -> GcResult:
    return collect_garbage(world.store.url, open_store=open_store, now_s=time.time() + 1e6, older_than_s=86_400, dry_run=True)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _leaves_nothing(world: World, target: Path) -> None:
    assert _files(target) == []
    assert [info.key for info in world.store.list("savepoint-")] == []
    assert _garbage(world).missing == {}


def test_it_has_what_a_native_one_has(world: World, start: Start, pids: list[int], tmp_path: Path) -> None:
    """The oracle is a native savepoint of the same batch. Batches go on meanwhile, and a job of the other backend starts from it."""
    driver = _begun(world, start)
    native = driver.checkpoint((tmp_path / "native").as_uri())
    assert isinstance(native, CheckpointInfo)
    taking = Taking(driver, tmp_path / "canonical")
    poll_until(lambda: bool(pids), driver)
    listed = [each for each in list_checkpoints(world.store.url, open_store) if each.kind == "savepoint"]
    assert listed == [], "what is converted is no savepoint"
    _run(driver)
    info = taking.info()
    assert (info.format, info.kind, info.batch, info.without_table) == ("canonical", "savepoint", native.batch, ())
    assert open_checkpoint(info.path, open_store).metadata.is_canonical
    assert verify(info.path).sound
    assert _state(info.path) == _state(native.path)
    assert [info.key for info in world.store.list("savepoint-")] == []
    view = driver.coordinator.view()
    assert view.last_savepoint == info
    assert info in view.checkpoints
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    other = World(folder=tmp_path / "other", backend="rocksdb" if world.backend == "memory" else "memory")
    restored = start(3, info.path, world=other)
    again = restored.checkpoint((tmp_path / "again").as_uri())
    assert isinstance(again, CheckpointInfo)
    assert _state(again.path) == _state(native.path)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
@pytest.mark.parametrize("point", _CHILD_POINTS)
def test_the_converting_process_is_killed(
    world: World, start: Start, pids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """At each of its steps: the command fails and leaves nothing; the next one succeeds."""
    driver = _begun(world, start)
    monkeypatch.setenv("STATEFULSPARK_FAILPOINTS", point)
    error = Taking(driver, tmp_path / "canonical").result()
    assert isinstance(error, UnavailableError)
    assert str(-signal.SIGKILL) in str(error)
    _leaves_nothing(world, tmp_path / "canonical")
    view = driver.coordinator.view()
    assert (view.failed_checkpoints, view.snapshot_totals["savepoint"].failed) == (0, 1)
    monkeypatch.delenv("STATEFULSPARK_FAILPOINTS")
    assert verify(Taking(driver, tmp_path / "canonical").info().path).sound


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_the_converting_process_is_killed_at_any_moment(world: World, start: Start, pids: list[int], tmp_path: Path) -> None:
    driver = _begun(world, start)
    for number, pause_s in enumerate((0.0, 0.5, 1.5, 3.0)):
        taking, target = Taking(driver, tmp_path / f"canonical-{number}"), tmp_path / f"canonical-{number}"
        poll_until(partial(_has_more, pids, number), driver)
        time.sleep(pause_s)
        with suppress(ProcessLookupError):
            os.kill(pids[-1], signal.SIGKILL)
        result = taking.result()
        if isinstance(result, CheckpointInfo):
            assert verify(result.path).sound
        else:
            assert isinstance(result, UnavailableError)
            _leaves_nothing(world, target)
    _run(driver)
    driver.start_slot(0)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("failed", "kind"),
    [
        *((number, "failed") for number in range(1, 5)),
        (2, "late"),
        *left_to_test_all(
            (number, kind) for number in (1, 2, 3) for kind in ("lost", "late", "down", "full", "denied") if (number, kind) != (2, "late")
        ),
    ],
)
def test_storage_fails_at_each_call_of_the_driver(
    world: World, start: Start, pids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: int, kind: str
) -> None:
    """What the driver itself asks the savepoint directory; the last number is more than it does.

    A write of ``_metadata`` that storage makes after the driver has given up completes a savepoint.
    """
    driver = _begun(world, start)
    faults = Faults(kind, failed)
    monkeypatch.setattr(
        driver.coordinator._durable, "open_store", lambda url: open_store(url) if "canonical" not in url else faults.open(url)
    )
    result = Taking(driver, tmp_path / "canonical").result()
    for write in faults.late:
        write()
    complete = [each for each in _files(tmp_path / "canonical") if each.name == "_metadata"]
    assert isinstance(result, CheckpointInfo) or failed <= faults.calls
    may_be_complete = kind in ("lost", "late") and "put_if_absent" in faults.names[failed - 1 : failed]
    assert (len(complete) == 1) == (isinstance(result, CheckpointInfo) or may_be_complete)
    assert not may_be_complete or f"{complete[0].parent.as_uri()} may be complete" in str(result)
    assert [info.key for info in world.store.list("savepoint-")] == []
    if complete:
        assert verify(complete[0].parent.as_uri()).sound


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_storage_that_fails_now_and_then(
    world: World, start: Start, pids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The converting process repeats its requests as the driver does."""
    driver = _begun(world, start)
    monkeypatch.setenv("STATEFULSPARK_STORAGE_FAULTS", "seed=3,rate=0.2,kinds=error|lost-reply")
    info = Taking(driver, tmp_path / "canonical").info()
    monkeypatch.undo()
    assert verify(info.path).sound
    assert dict(_state(info.path)["number"])


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_a_file_that_is_missing(world: World, start: Start, pids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the converting process is that of the command."""
    driver = _begun(world, start)

    def damaged(origin: StoredCheckpoint, *args: Any) -> Any:
        gone = f"{origin.folder}/{origin.metadata.slots[0].files[0].path}"
        origin.store.delete([gone])
        return convert(origin, *args)

    monkeypatch.setattr(canonical_savepoints, "convert", damaged)
    assert isinstance(Taking(driver, tmp_path / "canonical").result(), CorruptDataError)
    _leaves_nothing(world, tmp_path / "canonical")


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_it_takes_too_long(world: World, start: Start, pids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is ended, and so is a wait for the snapshot or for an earlier savepoint."""
    driver = _begun(world, start)
    canonical = driver.coordinator.canonical
    with pytest.raises(UnavailableError, match="within 0 s"):
        canonical.take((tmp_path / "canonical").as_uri(), 0.01, lambda: None)  # nobody polls, so no snapshot begins
    driver.coordinator.poll()
    limit = canonical_savepoints._Limit
    monkeypatch.setattr(limit, "age_s", property(lambda _: 1e9 if pids else 0.0))
    assert isinstance(Taking(driver, tmp_path / "canonical").result(), UnavailableError)
    assert len(pids) == 1
    _leaves_nothing(world, tmp_path / "canonical")


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_snapshot_that_is_complete_after_its_caller_left(
    world: World, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody converts it, so its files go."""
    driver = _begun(world, start)
    publish = driver.coordinator._durable.publish
    entered, left = threading.Event(), threading.Event()

    def late(*args: Any) -> Any:
        entered.set()
        assert left.wait(30)
        return publish(*args)

    monkeypatch.setattr(driver.coordinator._durable, "publish", late)
    request = driver.coordinator.snapshots.request(world.store.url, unpublished=True)
    poll_until(entered.is_set, driver)
    assert driver.coordinator.snapshots.withdraw(request)
    left.set()
    poll_until(request.done.is_set, driver)
    poll_until(lambda: not world.store.list("savepoint-"), driver)
    _leaves_nothing(world, tmp_path / "canonical")


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_the_job_ends_meanwhile(world: World, start: Start, pids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is cancelled or stopped ends the conversion first."""
    driver = _begun(world, start)
    begun = threading.Event()

    def held(origin: Any, target: str, folder: str, storage: Any, check: Callable[[], None]) -> Any:
        def closed_by_now() -> None:
            begun.set()
            assert driver.coordinator.canonical._closed.wait(30)
            check()

        return convert(origin, target, folder, storage, closed_by_now)

    with monkeypatch.context() as patched:
        patched.setattr(canonical_savepoints, "convert", held)
        taking = Taking(driver, tmp_path / "canonical")
        poll_until(begun.is_set, driver)
        driver.close()
        _leaves_nothing(world, tmp_path / "canonical")
        assert isinstance(taking.ended(), ClosedError)
    again = start(1)
    _run(again)
    assert isinstance(Taking(again, tmp_path / "canonical").result(), CheckpointInfo)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_driver_that_was_replaced_publishes_nothing(
    world: World, start: Start, pids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = _begun(world, start)

    def replaced(*args: Any) -> Any:
        result = convert(*args)
        start(2)
        return result

    monkeypatch.setattr(canonical_savepoints, "convert", replaced)
    assert isinstance(Taking(driver, tmp_path / "canonical").result(), FencedError)
    assert isinstance(driver.coordinator.fatal, FencedError)
    _leaves_nothing(world, tmp_path / "canonical")


@pytest.mark.parametrize("world", ["memory"], indirect=True)
@pytest.mark.parametrize("point", ["driver.conversion.written", "driver.conversion.published"])
def test_the_driver_dies(world: World, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """It tidies up nothing: what is left in the job's folder is garbage, what is published is whole, and the job resumes."""
    driver = _begun(world, start)
    monkeypatch.setattr(Publication, "discard", lambda _: None)
    monkeypatch.setattr(canonical_savepoints.CanonicalSavepoints, "_delete_origin", lambda *_: None)
    world.doomed = point
    assert isinstance(Taking(driver, tmp_path / "canonical").result(), Died)
    driver.close()
    monkeypatch.undo()
    result = _garbage(world)
    assert result.missing == {}
    left = {info.key for info in world.store.list("savepoint-")}
    assert left
    assert {each.key for each in result.plan.garbage if each.kind == "savepoint file"} == left
    (listed,) = list_checkpoints((tmp_path / "canonical").as_uri(), open_store)
    assert listed.status == ("complete" if point.endswith("published") else "unfinished")
    assert listed.status == "unfinished" or verify(listed.url).sound
    _run(start(2))


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_two_at_once(world: World, start: Start, pids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits for the first."""
    driver = _begun(world, start)
    running: list[int] = []

    def alone(*args: Any) -> Any:
        running.append(1)
        assert len(running) == 1
        result = convert(*args)
        running.pop()
        return result

    monkeypatch.setattr(canonical_savepoints, "convert", alone)
    takings = [Taking(driver, tmp_path / "canonical") for _ in range(2)]
    assert len({taking.info().path for taking in takings}) == 2


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_place_that_is_none(world: World, start: Start) -> None:
    """It is refused before anything is taken."""
    driver = _begun(world, start)
    with pytest.raises(InvalidInputError):
        driver.coordinator.canonical.take("ftp://host/folder", 1.0, lambda: None)
    assert not driver.coordinator.snapshots


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_container_without_memory_for_it(world: World, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the kernel may end the driver with it. The remedy names the setting, and nothing is taken."""
    driver = _begun(world, start)
    monkeypatch.setattr(canonical_savepoints, "free_memory_bytes", lambda: 100 << 20)
    with pytest.raises(InvalidInputError, match=r"has 100Mi left. Raise spec\.driver\.memory by 384Mi"):
        driver.coordinator.canonical.take(tmp_path.as_uri(), 1.0, lambda: None)
    assert not driver.coordinator.snapshots
    monkeypatch.setattr(canonical_savepoints, "free_memory_bytes", lambda: 384 << 20)
    assert Taking(driver, tmp_path).info().format == "canonical"
