"""A slot registers while storage is slow: the operator state that it must be given is read without the batch lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.restore import operator_state
from statefulspark.checkpoint.restore.changelog_objects import download_changelogs
from statefulspark.checkpoint.transfers import download_verified
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.slots import actions as slot_actions
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.errors import CorruptDataError, UnavailableError
from statefulspark.exchange import task
from statefulspark.exchange.task import exchange_partition
from statefulspark.rpc.messages.batches import Begin, EmptyPartition, PartitionRun, Planned, Tick, TickAnswer, Wait
from statefulspark.rpc.messages.slots import Register
from statefulspark.slot import process

from .conftest import Start
from .test_operator_state_lives import Remember, elements
from .world import STEP, UID, Driver, World

pytestmark = pytest.mark.parametrize("world", ["memory"], indirect=True)
_S = 20.0


class SlowStorage:
    """Stands for `download_verified` and `download_changelogs` of operator state: reads wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.goes_on = threading.Event()
        self.damaged = False
        self.reads = 0
        monkeypatch.setattr(operator_state, "download_verified", self.download)
        monkeypatch.setattr(operator_state, "download_changelogs", self.download_changelogs)

    def download(self, store: Any, key: str, path: Path, digest: Any) -> None:
        self._read(key)
        download_verified(store, key, path, digest)

    def download_changelogs(self, store: Any, refs: Sequence[ChangelogRef], path: Path) -> list[Path]:
        self._read(refs[0].key)
        return download_changelogs(store, refs, path)

    def _read(self, key: str) -> None:
        self.reads += 1
        damaged = self.damaged
        self.reached.set()
        assert self.goes_on.wait(_S), "the test has left a read waiting"
        if damaged:
            raise CorruptDataError("retention has deleted it", path=key)

    def hold(self) -> None:
        self.reached.clear()
        self.goes_on.clear()


class TaskClock:
    """Stands for the module `time` of exchange tasks: the time that one sees passes only while storage is held, 20 s between two of its requests."""

    def __init__(self, storage: SlowStorage) -> None:
        self._storage = storage
        self.polls = threading.Semaphore(0)
        # One per task: else the requests of one could use up the patience of the other, which the machine does not let run meanwhile.
        self._seen_s: dict[int, float] = {}

    @property
    def now_s(self) -> float:
        return max(self._seen_s.values())

    def monotonic(self) -> float:
        return self._seen_s.get(threading.get_ident(), 0.0)

    def sleep(self, duration_s: float) -> None:
        if not self._storage.goes_on.is_set():
            self._seen_s[threading.get_ident()] = self.monotonic() + 20.0
        self.polls.release()
        time.sleep(duration_s)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowStorage]:
    storage = SlowStorage(monkeypatch)
    storage.goes_on.set()
    yield storage
    storage.goes_on.set()


@pytest.fixture
def driver(world: World, start: Start, storage: SlowStorage) -> Driver:
    """A job with a checkpoint and two batches after it; the second batch of the source is left."""
    world.step = replace(STEP, function=Remember())
    world.input = [(f"key-{n}", n) for n in range(20)]
    driver = start(2)
    for number in range(3):
        batch = driver.plan(5)
        assert batch is not None
        driver.run(batch)
        if not number:
            assert isinstance(driver.checkpoint(), CheckpointInfo)
    assert not driver.coordinator.poll(), "the last batch is not committed"
    return driver


def register(driver: Driver) -> Any:
    return driver._peer.call(Register(slot=0, executor="e", host="h", pid=1))


def test_a_registration_is_answered_although_storage_takes_longer_than_a_call_may(
    driver: Driver, world: World, storage: SlowStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is to ask again, and is answered when operator state has been read, once. A slot that registers does so by itself, until the job stops."""
    monkeypatch.setattr(slot_actions, "_PREPARED_S", 0.05)
    table = SlotTable(2, slots_per_executor=None)
    driver.coordinator.slots.replace(table)
    storage.reads = 0
    storage.hold()
    assert register(driver) == register(driver) == Wait(reason="storage")
    table.stopping = True
    assert register(driver) is None, "the slot's process ends with the job"
    table.stopping = False
    with ThreadPoolExecutor(1) as pool:
        slot = pool.submit(process.register, driver._peer, Register(slot=0, executor="e", host="h", pid=1))
        assert storage.reached.wait(_S)
        time.sleep(0.2)
        assert not slot.done()
        storage.goes_on.set()
        answer = slot.result(_S)
    assert answer is not None
    assert answer.operator_state is not None
    files, changelogs = 2, 4
    assert storage.reads == files + changelogs
    driver.start_slot(0)
    driver.start_slot(1)
    finish(world, driver)


def test_tasks_wait_for_a_slot_that_waits_for_storage_as_for_one_that_restores(
    driver: Driver, world: World, storage: SlowStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been started, so tasks need not leave it their core after `start_wait_s`. Both kinds of tasks go on when storage has answered."""
    monkeypatch.setattr(slot_actions, "_PREPARED_S", 0.05)
    begin, empty = Begin(uid=UID, slot=0, batch=3), EmptyPartition(uid=UID, batch=3, run=PartitionRun("late", 0, 1))
    driver.coordinator.slots.replace(SlotTable(2, slots_per_executor=None))
    (driver.location / "offsets" / "3").write_text('{"first": 15, "until": 20, "tick": 0, "ticked": false}')
    assert driver._peer.call(Planned()) is None
    assert driver._peer.call(begin) == driver._peer.call(empty) == Wait(reason="starting"), "no slot has asked to be registered"
    storage.hold()
    with capture_logs() as logs:
        for _ in range(3):
            assert register(driver) == Wait(reason="storage")
            assert driver._peer.call(begin) == driver._peer.call(empty) == Wait(reason="restoring")
    assert [each["waited_s"] for each in logs if "takes long" in each["event"]] == [0.05], "the log says so once"
    clock = TaskClock(storage)
    monkeypatch.setattr(task, "time", clock)
    config = replace(driver.exchange, start_wait_s=30.0, restore_wait_s=1e6)
    with ThreadPoolExecutor(2) as tasks:
        rows = next(each for each in driver.partitions(3) if each.num_rows)
        with_rows = tasks.submit(lambda: list(exchange_partition(config, 3, PartitionRun("late", 0, 0), iter([rows]))))
        without = tasks.submit(lambda: list(exchange_partition(config, 3, PartitionRun("late", 1, 1), iter([]))))
        assert all(clock.polls.acquire(timeout=_S) for _ in range(10))
        assert not with_rows.done()
        assert not without.done()
        assert clock.now_s > 2 * config.start_wait_s
        storage.goes_on.set()
        driver.start_slot(0)
        driver.start_slot(1)
        assert sum(each.num_rows for each in with_rows.result(_S)) > 0
        assert without.result(_S) == []
    driver.run(3)
    finish(world, driver)


def test_the_job_that_has_failed_meanwhile_is_what_tasks_hear(
    driver: Driver, storage: SlowStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end at once, instead of after `restore_wait_s`."""
    monkeypatch.setattr(slot_actions, "_PREPARED_S", 0.05)
    driver.coordinator.slots.replace(SlotTable(2, slots_per_executor=None))
    (driver.location / "offsets" / "3").write_text('{"first": 15, "until": 20, "tick": 0, "ticked": false}')
    assert driver._peer.call(Planned()) is None
    storage.hold()
    assert register(driver) == Wait(reason="storage")
    driver.coordinator._failure.fail(CorruptDataError("a checkpoint is damaged", path="chk-1"))
    with pytest.raises(CorruptDataError, match="a checkpoint is damaged"):
        driver._peer.call(Begin(uid=UID, slot=0, batch=3))
    with pytest.raises(CorruptDataError, match="a checkpoint is damaged"):
        driver._peer.call(EmptyPartition(uid=UID, batch=3, run=PartitionRun("late", 0, 1)))


def test_a_registration_is_answered_although_another_thread_adopts_a_batch(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the lock of the inbox were held for long, which nobody does."""
    monkeypatch.setattr(slot_actions, "_PREPARED_S", 0.05)
    with driver.coordinator._lock:
        assert register(driver) == Wait(reason="storage")
    answer = process.register(driver._peer, Register(slot=0, executor="e", host="h", pid=1))
    assert answer is not None


def test_an_outage_while_operator_state_is_read_is_what_the_slot_hears(
    driver: Driver, world: World, storage: SlowStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next registration reads again."""
    driver.coordinator.slots.replace(SlotTable(2, slots_per_executor=None))
    with monkeypatch.context() as patch:
        patch.setattr(operator_state, "download_verified", _refuse)
        with pytest.raises(UnavailableError, match="storage is away"):
            register(driver)
    driver.start_slot(0)
    driver.start_slot(1)
    finish(world, driver)


def _refuse(*_: Any) -> None:
    raise UnavailableError("storage is away")


def finish(world: World, driver: Driver) -> None:
    while (batch := driver.plan(5)) is not None:
        driver.run(batch)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    assert elements(world, "split") == {f"{key}#1": 1 for key, _ in world.input}


def test_a_batch_begins_while_a_registration_waits_for_storage(world: World, driver: Driver, storage: SlowStorage) -> None:
    """The tick source gets its offset, the record of the batch is written, and exchanges hear that their slot restores."""
    driver.coordinator.slots.replace(SlotTable(2, slots_per_executor=None))
    storage.hold()
    with ThreadPoolExecutor(1) as pool:
        registration = pool.submit(register, driver)
        assert storage.reached.wait(_S)
        with ThreadPoolExecutor(1) as others:
            assert others.submit(driver._peer.call, Tick(uid=UID, after=0)).result(_S / 2) == TickAnswer(offset=0)
            (driver.location / "offsets" / "3").write_text('{"first": 15, "until": 20, "tick": 0, "ticked": false}')
            assert others.submit(driver._peer.call, Planned()).result(_S / 2) is None
            assert isinstance(others.submit(driver._peer.call, Begin(uid=UID, slot=0, batch=3)).result(_S / 2), Wait)
        assert world.store.head(paths.batch_key(driver.coordinator.view().attempt, 3)) is not None
        assert not registration.done()
        storage.goes_on.set()
        assert registration.result(_S) is not None
    driver.start_slot(0)
    driver.start_slot(1)
    driver.run(3)
    finish(world, driver)


def test_one_registration_reads_for_all(world: World, driver: Driver, storage: SlowStorage) -> None:
    """The others wait for it, and find what it has read."""
    driver.coordinator.slots.replace(SlotTable(2, slots_per_executor=None))
    storage.reads = 0
    storage.hold()
    with ThreadPoolExecutor(4) as pool:
        registrations = [pool.submit(register, driver) for _ in range(4)]
        assert storage.reached.wait(_S)
        storage.goes_on.set()
        epochs = [registration.result(_S).epoch for registration in registrations]
    assert len(set(epochs)) == 4
    files, changelogs = 2, 4
    assert storage.reads == files + changelogs
    driver.start_slot(0)
    driver.start_slot(1)
    finish(world, driver)


@pytest.mark.parametrize("parallelism", [2, 3])
def test_slots_that_are_replaced_meanwhile_do_not_get_what_was_read(
    world: World, driver: Driver, storage: SlowStorage, parallelism: int
) -> None:
    """It was split among other slots. The process starts again."""
    driver.coordinator.slots.replace(SlotTable(4, slots_per_executor=None))
    storage.hold()
    with ThreadPoolExecutor(1) as pool:
        registration = pool.submit(register, driver)
        assert storage.reached.wait(_S)
        driver.coordinator.slots.replace(SlotTable(parallelism, slots_per_executor=None))
        storage.goes_on.set()
        assert registration.result(_S) is None
    driver.rescale(parallelism)
    finish(world, driver)


def test_an_object_that_is_gone_because_the_state_moved_on_is_no_damage(world: World, driver: Driver, storage: SlowStorage) -> None:
    """A checkpoint that completes meanwhile lets retention delete what is being read; the base is not marked as damaged."""
    driver.coordinator.slots.replace(SlotTable(4, slots_per_executor=None))
    storage.hold()
    storage.damaged = True
    with ThreadPoolExecutor(1) as pool:
        registration = pool.submit(register, driver)
        assert storage.reached.wait(_S)
        driver.coordinator.slots.replace(SlotTable(2, slots_per_executor=None))
        storage.damaged = False
        storage.goes_on.set()
        assert registration.result(_S) is None
    assert driver.coordinator.fatal is None
    assert not [info.key for info in world.store.list("") if info.key.endswith("_damaged")]
    driver.rescale(2)
    finish(world, driver)
