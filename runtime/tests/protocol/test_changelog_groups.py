"""The driver stores the changelogs of all slots and steps in one object per batch: exact like changelogs one by one, whatever fails in between."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from statefulspark.checkpoint.formats import changelog, documents
from statefulspark.checkpoint.formats.changelog_group import decode_group, is_group
from statefulspark.checkpoint.lineage.lineage import read_record
from statefulspark.coordinator.batches import changelog_groups
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import CorruptDataError, IncompatibleFormatError, StatefulSparkError, UnavailableError

from .changing import ChangingWorld, check_all
from .conftest import Start, StartChanging
from .test_lives import expected
from .world import Died, Driver, World, state_of

ALL = 1 << 20
"""Larger than any changelog here."""


def ran(driver: Driver, rows: int = 8, **options: Any) -> int:
    """Run the next batch; its number."""
    batch = driver.plan(rows)
    assert batch is not None
    driver.run(batch, **options)
    return batch


def finish(driver: Driver) -> None:
    """Process the rest of the input, let all timers fire and take a last checkpoint."""
    while (batch := driver.plan(20)) is not None:
        driver.run(batch)
    driver.coordinator.query.drain()
    while (batch := driver.plan(20)) is not None:
        driver.run(batch)
    assert isinstance(driver.checkpoint(), CheckpointInfo)


def check(world: World) -> None:
    """Every row counts once, in output and state."""
    given = Counter((key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows)
    assert given == expected(world.input)
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())
    assert state_of(world, "event-timers") == []


def objects(world: World, batch: int, attempt: int = 1) -> list[str]:
    """Keys of the objects with changelogs of a batch."""
    return [info.key for info in world.store.list(f"changelog/{attempt:08d}/{batch:012d}/")]


@pytest.fixture(autouse=True)
def rows(world: World) -> None:
    world.input = [(f"key-{n % 9}", 10 * n) for n in range(80)]
    world.inline_up_to(ALL)


def test_a_batch_has_one_object_for_all_slots_and_steps(changing: ChangingWorld, begin: StartChanging) -> None:
    """Those that had no rows too. The next driver, of another parallelism, restores from it, and goes on without groups."""
    changing.input[:3] = [("key-0", 10 * n) for n in range(3)]
    changing.inline_up_to(ALL)
    driver = begin("a", "b", "c", parallelism=3)
    assert ran(driver, 3) == 0
    assert [ran(driver, 5) for _ in range(3)] == [1, 2, 3]
    for batch in range(3):
        (key,) = objects(changing, batch)
        data = changing.store.get(key)
        assert is_group(data)
        record = read_record(changing.store, f"batches/00000001/{batch + 1:012d}")
        assert {ack.key for ack in record.acks} == {key}
        assert sorted({ack.uid for ack in record.acks}) == ["a", "b", "c"]
        # Only the first batch left slots without rows, one changelog for neighbours of a step, which no record names.
        assert (
            len(decode_group(data, path=key)) > len(record.acks)
            if batch == 0
            else len(decode_group(data, path=key)) == len(record.acks) == 9
        )
        assert changing.store.get(f"batches/00000001/{batch + 1:012d}").startswith(b'{"format_version":14,')
    changing.inline_up_to(0)
    driver = begin("c", "b", "a", parallelism=2)
    run = ran(driver)
    assert ran(driver) == run + 1
    assert len(objects(changing, run + 1, attempt=2)) == 6
    changing.inline_up_to(ALL)
    check_all(changing, begin("a", "b", "c", parallelism=1))


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_large_changelog_is_an_object_of_its_own(world: World, start: Start) -> None:
    """The small ones of the batch go into one object all the same."""
    world.input = [(f"key-{n % 9}", 10 * n) for n in range(9)] + [("key-1", 100 + 10 * n) for n in range(60)]
    world.inline_up_to(0)
    driver = start(3)
    ran(driver, 9)
    ran(driver, 60)
    largest = max(world.store.list("changelog/00000001/000000000001/"), key=lambda info: info.size_bytes).size_bytes
    driver.close()
    world.inline_up_to(largest - 1)
    world.input += [(f"key-{n % 9}", 900 + 10 * n) for n in range(9)] + [("key-1", 1000 + 10 * n) for n in range(60)]
    driver = start(3)
    while (batch := driver.plan(60)) is not None:
        driver.run(batch)
    kinds = {batch: sorted("group" in key for key in objects(world, batch, attempt=2)) for batch in range(2, 5)}
    assert [False, True] in kinds.values(), kinds
    finish(start(2))
    check(world)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_objects_are_bounded(world: World, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changelogs that are too much for one object are divided, those of a slot side by side. One that is left alone is stored as ever."""
    monkeypatch.setattr(changelog_groups, "GROUP_BYTES", 2000)
    driver = start(3)
    ran(driver)
    found = [world.store.get(key) for key in objects(world, 0)]
    assert len(found) == 2
    assert sorted(map(is_group, found)) == [False, True]
    start(2).close()
    driver = start(2)
    finish(driver)
    check(world)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_batch_that_runs_again_leaves_a_trace_of_each_slot(world: World, start: Start) -> None:
    """What a driver has processed in part may be what its sink has, so an earlier driver's changelogs may not count: its slots store their own."""
    driver = start(2)
    assert ran(driver) == 0
    assert ran(driver, commit=False, deliver=False) == 1
    assert [("group" in key) for key in objects(world, 1)] == [True]
    driver.close()
    driver = start(2)
    assert ran(driver) == 1
    assert [("group" in key) for key in objects(world, 1, attempt=2)] == [False, False]
    assert ran(driver) == 2
    assert [("group" in key) for key in objects(world, 2, attempt=2)] == [True]
    finish(driver)
    check(world)


@pytest.mark.parametrize("point", ["driver.group", "driver.grouped", "driver.acknowledged", "slot.changelog.durable", "slot.acknowledged"])
@pytest.mark.parametrize("spared", range(3))
def test_whoever_dies_around_the_write(world: World, start: Start, point: str, spared: int) -> None:
    """The sink has the batch or not: state and output are exact."""
    driver = start(2)
    ran(driver)
    world.doomed, world.spared = point, spared
    for _ in range(3):
        try:
            ran(driver)
        except Died:
            break
    driver.close()
    world.doomed = None
    finish(start(3))
    check(world)


@pytest.mark.parametrize("again", [True, False], ids=["storage is back", "storage is still away"])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_sink_that_goes_on_after_a_failed_write(world: World, start: Start, again: bool) -> None:
    """A user's sink may swallow the error of a task. Spark commits the batch, which does not count before its changelogs are durable."""
    driver = start(2)
    ran(driver)
    batch = driver.plan(8)
    assert batch == 1
    driver.begin()
    world.changelog_outages = ["lost"] if again else ["lost", "lost"]
    driver._execution += 1
    first, last = driver.partitions(batch)
    driver._exchanged(batch, first, 0)
    with pytest.raises(UnavailableError):
        driver._exchanged(batch, last, 1)
    assert objects(world, 1) == []
    (driver.location / "commits" / "1").write_text("{}")
    if not again:
        with pytest.raises(UnavailableError):
            driver.coordinator.poll()
        assert driver.coordinator.view().committed == 0
    driver.complete()
    assert driver.coordinator.view().committed == 1
    assert len(objects(world, 1)) == 1
    # The slot of the failed task has dropped its changes, and the other one is lost: both read the object.
    driver.start_slot(0)
    assert ran(driver) == 2
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input[:24]).items())


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_every_damage_to_a_group_is_found(world: World, start: Start) -> None:
    """Of a committed batch, by the checksum in the record. No slot starts from it, and what it proves is not proven."""
    driver = start(2)
    for _ in range(3):
        ran(driver)
    driver.close()
    (key,) = objects(world, 0)
    whole = world.store.get(key)
    for position in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        world.store.put(key, bytes(damaged))
        with pytest.raises((CorruptDataError, IncompatibleFormatError)):
            start(2)
    world.store.delete([key])
    with pytest.raises(CorruptDataError, match="missing"):
        start(3)
    world.store.put(key, whole)
    finish(start(3))
    check(world)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_an_earlier_release_refuses_the_job_and_marks_nothing(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """By the record, or, before there is one, by the object of the batch that may have to be taken over. Then the newer release goes on."""
    driver = start(2)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    for _ in range(3 if committed else 1):
        ran(driver, commit=committed)
    driver.close()
    with monkeypatch.context() as earlier:
        earlier.setattr(documents, "FORMAT_VERSION", 12)
        earlier.setattr(changelog, "VERSION", 5)
        with pytest.raises(StatefulSparkError, match="cannot read") as found:
            start(2)
        assert isinstance(found.value, IncompatibleFormatError)
    assert [info.key for info in world.store.list("") if info.key.endswith("_damaged")] == []
    finish(start(2))
    check(world)
