"""Incarnations of a slot that live on after another one has taken over change nothing; retention leaves what a slot is restoring."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest

from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.slots.state import READY, RESTORING
from statefulspark.errors import FencedError
from statefulspark.rpc.flight import FlightPeer
from statefulspark.rpc.messages.batches import Begin, BeginAnswer, ExchangeRequest
from statefulspark.slot.service import SlotService

from .conftest import Start
from .test_lives import expected
from .world import UID, Driver, World, state_of

_ROWS = [("key-1", 10), ("key-1", 20)]


def send(driver: Driver, service: SlotService, batch: int, epoch: int) -> None:
    """Send a planned batch to this incarnation, as an exchange task does that was told of it before another one registered."""
    (rows,) = driver.partitions(batch)
    slot = driver.job.slot_of_key(_ROWS[0][0], driver.parallelism)
    begun = driver.coordinator._batch_actions.begin(Begin(uid=UID, slot=slot, batch=batch))
    assert isinstance(begun, BeginAnswer)
    peer = FlightPeer(service.servers[0].location, driver.coordinator.endpoint.secret)
    request = ExchangeRequest(uid=UID, slot=slot, batch=batch, epoch=epoch, run=begun.run, waited_s=0.0)
    with closing(peer.open_exchange(request, rows.schema)) as call:
        call.send(rows)
        call.end()
        assert list(call.results())


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_the_acknowledgement_of_an_old_incarnation_is_refused(world: World, start: Start) -> None:
    """It processes the batch and is told that it is not the slot any more; the batch then runs on the new one and counts once."""
    world.input = _ROWS
    driver = start(1)
    old = driver.slots.pop(0)
    driver.start_slot(0)
    assert driver.plan(2) == 0
    with pytest.raises(FencedError):
        send(driver, old, 0, epoch=1)
    driver.run(0)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    assert state_of(world, "number") == [("key-1", 2)]
    old.close()


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_caller_who_means_another_incarnation_is_refused(world: World, start: Start) -> None:
    """Ports are used again, so an address alone does not say whose it is."""
    world.input = _ROWS
    driver = start(1)
    assert driver.plan(2) == 0
    with pytest.raises(FencedError):
        send(driver, driver.slots[0], 0, epoch=2)
    driver.run(0)


@pytest.mark.parametrize("again", [False, True], ids=["late commit", "runs again"])
@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_query_restarts_while_a_driver_that_was_cut_off_commits_the_sink(world: World, start: Start, slots: int, again: bool) -> None:
    """Half of the slots have acknowledged when the query fails; then the sink has the batch, from another driver, and Spark skips it.

    What the other slots changed is in storage and must not be forgotten. Without the late commit the batch runs again and counts once.
    """
    world.input = [(f"key-{n % 7}", 10 * n) for n in range(40)]
    first = start(2)
    assert first.plan(20) == 0
    first.run(0)
    assert first.plan(20) == 1
    first.run(1, deliver=False)
    second = start(slots)
    assert second.plan(0) == 1
    partition = next(second.partitions(1))
    second.run_task(1, partition)
    assert second.coordinator.query.before_start() is False
    if not again:
        world.sink[1] = [tuple(row) for row in world.seen[1]]
    second.run(1)
    second.coordinator.query.drain()
    while (batch := second.plan(0)) is not None:
        second.run(batch)
        second.check_stores()
    assert isinstance(second.checkpoint(), CheckpointInfo)
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())
    assert state_of(world, "event-timers") == []
    given = Counter((key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows)
    assert given == expected(world.input)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_retention_leaves_what_a_slot_is_restoring(world: World, start: Start) -> None:
    """A slot that registers before a checkpoint is complete restores from the one before, and from the changelogs since.

    Once it has, they go.
    """
    world.input = [("key-1", 10 * n) for n in range(40)]
    driver = start(1)
    coordinator = driver.coordinator
    clean = coordinator._checkpoints._clean
    coordinator._checkpoints._clean = lambda: None  # type: ignore[method-assign]  # it is called by hand
    driver.plan(1)
    driver.run(0)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    driver.plan(1)
    driver.run(1)
    needed = {info.key for info in world.store.list("") if info.key.startswith(("chk-", "changelog/"))}
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    coordinator.slots.table()._slots[0] = replace(coordinator.slots.table().get(0), state=RESTORING)
    clean()
    assert needed <= {info.key for info in world.store.list("")}
    coordinator.slots.table()._slots[0] = replace(coordinator.slots.table().get(0), state=READY)
    clean()
    assert not needed & {info.key for info in world.store.list("")}
