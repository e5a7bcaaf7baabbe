"""Objects that are deleted, changed, or read badly once: a job goes on exactly, or is refused with a reason; it never starts from less."""

from __future__ import annotations

import copy
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import CorruptDataError, StatefulSparkError, UnavailableError
from statefulspark.storage.hashes import HashAlgorithm
from statefulspark.storage.local.store import LocalStore

from .conftest import Start
from .test_lives import expected
from .world import Driver, World, state_of

_CHANCES = 24


def lived(world: World, start: Start, *, stopped: bool = False, grouped: bool = False) -> None:
    """Two drivers, a checkpoint by each; the last batch is in the sink and not committed, or all is committed and in a checkpoint."""
    world.inline_up_to(1 << 20 if grouped else 0)
    world.input = [(f"key-{n % 9}", 10 * n) for n in range(90)]
    world.retained = 2
    for last in (False, True):
        driver = start(2)
        for number in range(4):
            batch = driver.plan(8)
            assert batch is not None
            driver.run(batch, commit=stopped or not (last and number == 3))
            if number == 1 or (stopped and number == 3):
                assert isinstance(driver.checkpoint(), CheckpointInfo)
        driver.close()


def finish(driver: Driver) -> None:
    """Run all that is left."""
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


def copied(world: World, folder: Path) -> World:
    """The same world with a storage of its own."""
    shutil.copytree(world.folder / "storage", folder / "storage")  # with times of modification, as a storage keeps them
    return World(
        folder=folder,
        backend=world.backend,
        retained=2,
        input=world.input,
        sink=copy.deepcopy(world.sink),
        seen=copy.deepcopy(world.seen),
        drivers=100,
    )


def kind_of(key: str) -> str:
    """What an object is."""
    folder, _, name = key.partition("/")
    if folder.startswith("chk-"):
        return f"checkpoint {name}" if name.startswith(("_", "spark-location")) else "checkpoint file"
    return "start" if key.endswith("-start") else folder


def cut(data: bytes, chance: Random) -> bytes:
    """Cut the end off."""
    return data[: chance.randrange(len(data))]


def flip(data: bytes, chance: Random) -> bytes:
    """Turn one bit."""
    changed = bytearray(data)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def extend(data: bytes, chance: Random) -> bytes:
    """Add a byte."""
    return data + bytes([chance.randrange(256)])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(None, id="delete"),
        pytest.param(flip, id="flip"),
        pytest.param(cut, id="cut", marks=pytest.mark.exhaustive),
        pytest.param(extend, id="extend", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize(
    ("stopped", "grouped"),
    [(False, False), *left_to_test_all([(True, False)]), (False, True)],
    ids=["crashed", "stopped", "crashed with changelogs in groups"],
)
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_one_damaged_object_never_costs_a_row(
    world: World, start: Start, tmp_path: Path, change: Callable[[bytes, Random], bytes] | None, stopped: bool, grouped: bool
) -> None:
    """One object of every kind, by chance: the job goes on exactly, or the error says why it cannot."""
    lived(world, start, stopped=stopped, grouped=grouped)
    chance = Random(7)
    kinds: dict[str, list[str]] = {}
    for info in world.store.list(""):
        if info.key.startswith("attempts/") and not info.key.endswith("-start"):
            continue  # claims fence drivers; nothing is restored from them
        kinds.setdefault(kind_of(info.key), []).append(info.key)
    assert len(kinds) >= 6
    for case in range(_CHANCES):
        key = chance.choice(kinds[sorted(kinds)[case % len(kinds)]])
        again = copied(world, tmp_path / f"case-{case}")
        path = again.folder / "storage" / "job" / key
        if change is None:
            path.unlink()
        else:
            path.write_bytes(change(path.read_bytes(), chance))
        driver: Driver | None = None
        try:
            driver = start(chance.randint(1, 3), world=again)
            finish(driver)
        except StatefulSparkError:
            continue
        finally:
            if driver is not None:
                driver.close()
        check(again)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("attempts/00000002-start", "the start record of attempt 2 is missing"),
        ("batches/00000002/000000000006", "the record of batch 6 is missing"),
    ],
)
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_what_is_missing_is_named(world: World, start: Start, pattern: str, said: str) -> None:
    """The newest start and the last record are what the lineage is found by; with the object back the job goes on."""
    lived(world, start)
    (key,) = (info.key for info in world.store.list("") if info.key == pattern)
    content = world.store.get(key)
    world.store.delete([key])
    with pytest.raises(CorruptDataError, match=rf"{said}.*--from PATH"):
        start(2)
    world.store.put(key, content)
    finish(start(2))
    check(world)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_changelog_of_a_batch_that_the_sink_has_is_gone(world: World, start: Start, grouped: bool) -> None:
    """The batch is processed again instead of being taken over in part."""
    lived(world, start, grouped=grouped)
    gone = next(info.key for info in world.store.list("changelog/00000002/000000000006/"))
    world.store.delete([gone])
    finish(start(2))
    check(world)


@pytest.mark.parametrize("kind", ["shared", "checkpoint _metadata", "checkpoint spark-location", "batches", "start", "changelog"])
@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_one_bad_read_is_no_damage(world: World, start: Start, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A bit flips on the way, once: the start reads again, and marks nothing."""
    lived(world, start)
    bad: list[str] = []
    get, get_file = LocalStore.get, LocalStore.get_file

    def flipped_get(self: LocalStore, key: str) -> bytes:
        data = get(self, key)
        if kind_of(key).startswith(kind) and not bad:
            bad.append(key)
            return flip(data, Random(3))
        return data

    def flipped_get_file(self: LocalStore, key: str, path: Path, algorithm: HashAlgorithm) -> Any:
        get_file(self, key, path, algorithm)
        if kind_of(key).startswith(kind) and not bad:
            bad.append(key)
            path.write_bytes(flip(path.read_bytes(), Random(3)))

    monkeypatch.setattr(LocalStore, "get", flipped_get)
    monkeypatch.setattr(LocalStore, "get_file", flipped_get_file)
    driver = start(2)
    finish(driver)
    assert bad
    assert [info.key for info in world.store.list("") if info.key.endswith("_damaged")] == []
    check(world)


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_a_marked_checkpoint_is_the_last_resort(world: World, start: Start) -> None:
    """Marks of a time of bad reads do not keep a job from starting when storage is healthy and there is nothing else."""
    lived(world, start, stopped=True)
    for number in {info.key.partition("/")[0] for info in world.store.list("") if info.key.startswith("chk-")}:
        world.store.put(f"{number}/_damaged", b"a bad read")
    finish(start(2))
    check(world)


def test_a_checkpoint_that_was_abandoned_before_the_first_batch_is_no_lost_state(world: World, start: Start) -> None:
    """Somebody asked for it, and the driver died before it was published. What slots had uploaded does not keep the job from starting."""
    driver = start(2)
    world.doomed = "driver.checkpoint.collected"
    assert isinstance(driver.checkpoint(), UnavailableError)
    assert world.backend == "memory" or world.store.list("chk-1/")
    driver.close()
    world.input = [(f"key-{n % 9}", 10 * n) for n in range(20)]
    driver = start(3)
    finish(driver)
    check(world)
