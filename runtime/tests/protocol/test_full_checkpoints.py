"""With ``incremental: false`` no checkpoint names files of an earlier one: each survives the loss of all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.state.backend import KeyedStateBackend
from statefulspark.storage.local.store import LocalStore
from statefulspark.storage.open import open_store

from .conftest import Start
from .test_replaced_drivers import check_all_rows_count_once, checkpoint, finish, run
from .world import Driver, World


def life(world: World, start: Start) -> list[tuple[int, set[int]]]:
    """Checkpoints after a batch, after a slot and a driver are lost, and after a rescale.

    Returns:
        The number of each, and those of the checkpoints that uploaded the table files which it names.
    """
    world.retained = 9
    world.input = [(f"key-{n % 5}", 10 * n) for n in range(15)]
    taken: list[tuple[int, set[int]]] = []

    def go_on(driver: Driver) -> None:
        run(driver, 3)
        info = checkpoint(driver)
        slots = open_checkpoint(info.path, open_store).metadata.slots
        taken.append((info.id, {int(file.path.removeprefix("../shared/").partition("-")[0]) for slot in slots for file in slot.shared}))

    driver = start(1)
    go_on(driver)
    driver.start_slot(0)
    go_on(driver)
    driver.close()
    driver = start(1)
    go_on(driver)
    driver.rescale(2)
    go_on(driver)
    driver.close()
    return taken


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_a_full_checkpoint_names_only_its_own_files(world: World, start: Start) -> None:
    """Whatever was restored before: with every other checkpoint and its files gone, the newest one is whole, and the job goes on from it."""
    world.incremental = False
    taken = life(world, start)
    assert [uploaders for _, uploaders in taken] == [{number} for number, _ in taken]
    newest = taken[-1][0]
    own = (f"chk-{newest}/", f"shared/{newest:010d}-")
    places = ("chk-", "shared/")
    others = [info.key for info in world.store.list("") if info.key.startswith(places) and not info.key.startswith(own)]
    assert len(others) > len(taken)
    world.store.delete(others)
    assert verify(f"{world.store.url}/chk-{newest}").problems == ()
    finish(start(1))
    check_all_rows_count_once(world)


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_an_incremental_checkpoint_names_files_of_earlier_ones(world: World, start: Start) -> None:
    """The same life by default: what the other test excludes does happen."""
    assert any(uploaders - {number} for number, uploaders in life(world, start))


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_a_full_savepoint_copies_no_file_of_a_checkpoint(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch, incremental: bool
) -> None:
    """In the storage of the checkpoints it does so by default; either way it is whole without them."""
    world.incremental = incremental
    world.input = [(f"key-{n % 5}", 10 * n) for n in range(15)]
    driver = start(1)
    run(driver, 3)
    checkpoint(driver)
    copied: list[str] = []
    copy = LocalStore.copy

    def recorded(store: LocalStore, source: str, target: str) -> None:
        copied.append(Path(target).suffix)
        copy(store, source, target)

    monkeypatch.setattr(LocalStore, "copy", recorded)
    savepoint = driver.checkpoint(f"{world.store.url}-savepoints")
    assert isinstance(savepoint, CheckpointInfo)
    assert (".sst" in copied) is incremental
    world.store.delete([info.key for info in world.store.list("shared/")])
    assert verify(savepoint.path).problems == ()


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_only_full_snapshots_leave_out_what_has_expired(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch, incremental: bool
) -> None:
    """Slots clean up before a checkpoint if checkpoints are not incremental, and before each savepoint."""
    world.incremental = incremental
    world.input = [(f"key-{n % 5}", 10 * n) for n in range(15)]
    cleaned: list[KeyedStateBackend] = []
    monkeypatch.setattr(KeyedStateBackend, "sweep_for_full_snapshot", lambda backend: cleaned.append(backend))  # noqa: PLW0108  a bound method is no method
    driver = start(1)
    run(driver, 3)
    checkpoint(driver)
    assert bool(cleaned) is not incremental
    cleaned.clear()
    assert isinstance(driver.checkpoint(f"{world.store.url}-savepoints"), CheckpointInfo)
    assert cleaned
