"""A job that claims the savepoint it starts from deletes it after its first own checkpoint, and never needs it again (Flink's CLAIM)."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.checkpoint.gc.collecting import collect_garbage
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

from .conftest import Start
from .test_replaced_drivers import check_all_rows_count_once, checkpoint, finish, run
from .world import Driver, World

_ROWS = [(f"key-{n % 5}", 10 * n) for n in range(40)]


def forked(world: World, start: Start, tmp_path: Path, *, claims: bool) -> tuple[World, str]:
    """A job that starts from another job's savepoint, after 8 rows; and the savepoint's URL."""
    world.input = _ROWS
    first = start(2)
    run(first, 8)
    taken = first.outcome(first.coordinator.snapshots.request(f"file://{tmp_path}/savepoints"))
    assert isinstance(taken, CheckpointInfo)
    (tmp_path / "fork").mkdir()
    fork = World(
        folder=tmp_path / "fork", backend=world.backend, input=_ROWS, claims=claims, sink={0: world.sink[0]}, seen={0: world.seen[0]}
    )
    return fork, taken.path


def is_there(url: str) -> bool:
    """True if any file of the savepoint is left."""
    return Path(url.removeprefix("file://")).exists() and any(Path(url.removeprefix("file://")).rglob("*"))


@pytest.mark.parametrize("claims", [True, False], ids=["CLAIM", "NO_CLAIM"])
def test_the_first_own_checkpoint_replaces_a_claimed_savepoint(world: World, start: Start, tmp_path: Path, claims: bool) -> None:
    """The copy does not: until the job has proved itself, a user may go back to the savepoint."""
    fork, savepoint = forked(world, start, tmp_path, claims=claims)
    driver = Driver(fork, 2, savepoint)
    run(driver, 8)
    assert is_there(savepoint)
    checkpoint(driver)
    assert is_there(savepoint) is not claims
    driver.close()
    driver = Driver(fork, 3)
    finish(driver)
    check_all_rows_count_once(fork)
    assert verify(fork.store.url).sound
    found = collect_garbage(fork.store.url, open_store=open_store, now_s=4e9, older_than_s=3600, dry_run=True)
    assert not found.missing
    driver.close()


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_a_driver_that_died_before_its_first_checkpoint_leaves_the_deletion_to_the_next(world: World, start: Start, tmp_path: Path) -> None:
    """Twice, and with batches in between; the number of drivers makes no difference."""
    fork, savepoint = forked(world, start, tmp_path, claims=True)
    driver = Driver(fork, 2, savepoint)
    run(driver, 8)
    driver.close()
    fork.claims = False
    driver = Driver(fork, 1)
    run(driver, 8)
    driver.close()
    assert is_there(savepoint)
    driver = Driver(fork, 3)
    run(driver, 8)
    assert is_there(savepoint)
    checkpoint(driver)
    assert not is_there(savepoint)
    finish(driver)
    check_all_rows_count_once(fork)
    driver.close()


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_two_forks_cannot_claim_the_same_savepoint(world: World, start: Start, tmp_path: Path) -> None:
    """The second one is refused; a fork that does not claim it goes on when it is deleted."""
    fork, savepoint = forked(world, start, tmp_path, claims=True)
    driver = Driver(fork, 2, savepoint)
    others = []
    for name, claims in (("claiming", True), ("copying", False)):
        (tmp_path / name).mkdir()
        others.append(World(folder=tmp_path / name, input=_ROWS, claims=claims, sink={0: world.sink[0]}, seen={0: world.seen[0]}))
    with pytest.raises(InvalidInputError, match="has claimed"):
        Driver(others[0], 1, savepoint)
    copying = Driver(others[1], 1, savepoint)
    checkpoint(driver)
    assert not is_there(savepoint)
    copying.start_slot(0)
    finish(copying)
    check_all_rows_count_once(others[1])
    driver.close()
    copying.close()


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_storage_that_denies_the_deletion_does_not_disturb_the_job(world: World, start: Start, tmp_path: Path) -> None:
    """The job takes checkpoints, and deletes the savepoint once it may."""
    fork, savepoint = forked(world, start, tmp_path, claims=True)
    driver = Driver(fork, 2, savepoint)
    claimed = driver.coordinator._durable._retention._claimed
    opened = claimed._open_store

    def denied(_: str) -> ObjectStore:
        raise InvalidInputError("s3:DeleteObject is denied", field="checkpointing.storage")

    claimed._open_store = denied
    run(driver, 8)
    checkpoint(driver)
    assert is_there(savepoint)
    claimed._open_store = opened
    run(driver, 8)
    checkpoint(driver)
    assert not is_there(savepoint)
    finish(driver)
    check_all_rows_count_once(fork)
    driver.close()


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
def test_a_job_whose_copy_is_damaged_says_that_the_savepoint_is_gone(world: World, start: Start, tmp_path: Path) -> None:
    """It used to fall back to the savepoint, and now names both."""
    fork, savepoint = forked(world, start, tmp_path, claims=True)
    driver = Driver(fork, 2, savepoint)
    run(driver, 8)
    checkpoint(driver)
    driver.close()
    for info in fork.store.list("chk-"):
        if info.key.endswith("_metadata"):
            fork.store.put(info.key, b"damaged")
    with pytest.raises(
        CorruptDataError, match=r"no checkpoint of the job can be restored.*/_metadata: .*; .*savepoint-.*: it no longer exists"
    ):
        Driver(fork, 2)
