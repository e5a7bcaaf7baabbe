"""Storage hangs while a batch record is written: whoever does not need the record is answered meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from statefulspark.checkpoint.formats.records import BatchRecord
from statefulspark.checkpoint.lineage.lineage import write_record
from statefulspark.coordinator.slots.state import READY
from statefulspark.errors import ConflictError, UnavailableError
from statefulspark.rpc.messages.batches import Begin, Planned, Tick, TickAnswer, Wait
from statefulspark.storage.base import ObjectStore

from .conftest import Start
from .test_lives import expected
from .world import UID, Driver, World

pytestmark = pytest.mark.parametrize("world", ["memory"], indirect=True)
_S = 120.0


@dataclass
class Hanging:
    """Stands for `write_record`: from now on, records wait until they may be written."""

    reached: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)

    planned: Future[Wait | None] = field(default_factory=Future)

    def go_on(self) -> None:
        """Let storage answer, as the last thing of all that was answered before."""
        assert not self.planned.done()
        self.goes_on.set()
        assert self.planned.result(_S) is None

    def write_record(self, store: ObjectStore, record: BatchRecord, check_fence: Callable[[], None]) -> str:
        self.reached.set()
        assert self.goes_on.wait(_S), "the test has left a record waiting"
        return write_record(store, record, check_fence)


@pytest.fixture
def driver(world: World, start: Start) -> Driver:
    """A job that has committed one batch."""
    world.input = [(f"k{number % 3}", 10 * number) for number in range(12)]
    driver = start(2)
    assert driver.plan(4) == 0
    driver.run(0)
    return driver


@pytest.fixture
def hanging(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    """The record of the second batch hangs."""
    hanging = Hanging()
    assert driver.plan(4) == 1
    monkeypatch.setattr("statefulspark.coordinator.batches.records.write_record", hanging.write_record)
    with ThreadPoolExecutor(1) as pool:
        planned = pool.submit(driver._peer.call, Planned())
        try:
            assert hanging.reached.wait(_S)
            hanging.planned = planned
            yield hanging
        finally:
            hanging.goes_on.set()


def finish(world: World, driver: Driver) -> None:
    driver.run(1)
    driver.coordinator.query.drain()
    while (batch := driver.plan(4)) is not None:
        driver.run(batch)
    given = [(key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows]
    assert sorted(given) == sorted(expected(world.input).elements())


def test_slots_and_status_are_answered(world: World, driver: Driver, hanging: Hanging) -> None:
    """A slot that dies meanwhile registers, restores and is ready; a task of the batch is told to wait."""
    view = driver.coordinator.view()
    assert view.committed == 0
    epoch = view.slots[1].epoch
    driver.start_slot(1)
    assert driver.coordinator.view().slots[1].epoch > epoch
    assert driver.coordinator.view().slots[1].state == READY
    driver.sweep()
    assert driver.coordinator.view().slots[0].report is not None, "its heartbeat was answered"
    assert driver._peer.call(Begin(uid=UID, slot=0, batch=1)) == Wait(reason="paused")
    assert isinstance(driver._peer.call(Tick(uid=UID, after=0)), TickAnswer)
    assert not driver.coordinator.poll()
    hanging.go_on()
    finish(world, driver)


def test_commands_are_answered(world: World, driver: Driver, hanging: Hanging) -> None:
    """A pause gives up in its time, and a command that must give way does so at once."""

    def give_way() -> None:
        raise ConflictError("another command")

    assert not driver.coordinator.query.idle()
    with pytest.raises(UnavailableError, match="did not end within"):
        driver.coordinator.query.pause(0.05)
    with pytest.raises(ConflictError, match="another command"):
        driver.coordinator.query.pause(_S, give_way)
    assert not driver.coordinator.query.paused
    hanging.go_on()
    finish(world, driver)
