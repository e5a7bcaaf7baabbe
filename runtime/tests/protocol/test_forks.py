"""A job that starts from another job's checkpoint stands on its own from the start: what becomes of the origin is nothing to it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.coordinator.controls import CheckpointInfo

from .conftest import Start
from .test_replaced_drivers import check_all_rows_count_once, checkpoint, compact, finish, run
from .world import Driver, World, state_of

_ROWS = [(f"key-{n % 5}", 10 * n) for n in range(40)]


def prune(driver: Driver) -> None:
    """Let the job take a checkpoint that shares no file with those before, which retention deletes."""
    compact(driver)
    run(driver, 8)
    checkpoint(driver)


def remove(driver: Driver) -> None:
    """Cancel the job; its state is not kept."""
    driver.coordinator.delete_state()


@pytest.mark.parametrize("origin", ["checkpoint", "savepoint"])
@pytest.mark.parametrize("batches", [0, 2], ids=["at once", "after two batches"])
@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_a_fork_lives_on_when_its_origin_is_gone(world: World, start: Start, tmp_path: Path, origin: str, batches: int) -> None:
    """Its slots and its driver are started again without a checkpoint of its own since; then it runs to the end."""
    world.input = _ROWS
    first = start(2)
    run(first, 8)
    request = first.coordinator.snapshots.request(f"file://{tmp_path}/savepoints" if origin == "savepoint" else None)
    taken = first.outcome(request)
    assert isinstance(taken, CheckpointInfo)

    (tmp_path / "fork").mkdir()
    fork = World(folder=tmp_path / "fork", backend="rocksdb", input=_ROWS, sink={0: world.sink[0]}, seen={0: world.seen[0]})
    driver = Driver(fork, 2, taken.path)
    assert driver.coordinator.view().restored_from == taken.path
    assert verify(fork.store.url).sound
    for _ in range(batches):
        run(driver, 8)
    prune(first)
    remove(first)
    for info in (store := first.coordinator._durable.open_store(f"file://{tmp_path}/savepoints")).list(""):
        store.delete([info.key])
    driver.start_slot(0)
    run(driver, 8)
    driver.close()
    driver = Driver(fork, 3)
    finish(driver)
    check_all_rows_count_once(fork)
    driver.close()


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_the_first_checkpoint_of_a_fork_uploads_nothing_twice(world: World, start: Start, tmp_path: Path) -> None:
    """The copies are the fork's own files, which its next checkpoint names."""
    world.input = _ROWS
    first = start(1)
    run(first, 8)
    taken = checkpoint(first)
    (tmp_path / "fork").mkdir()
    fork = World(folder=tmp_path / "fork", backend="rocksdb", input=_ROWS)
    driver = Driver(fork, 1, taken.path)
    copies = {info.key for info in fork.store.list("shared/")}
    assert copies
    fork.input = _ROWS[:16]
    run(driver, 8)
    checkpoint(driver)
    assert copies <= {info.key for info in fork.store.list("shared/")}
    assert sorted(state_of(fork, "number")) == sorted(Counter(key for key, _ in fork.input).items())
    driver.close()
