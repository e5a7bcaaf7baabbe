"""Retention by maximum age: also while no checkpoint is taken, and whatever happens to the clock."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from runtime.tests.coordinator.test_checkpoint_list import _metadata

from statefulspark.checkpoint.catalog import checkpoint_ids
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.lineage.identity import ensure_job
from statefulspark.checkpoint.lineage.lineage import begin_attempt
from statefulspark.checkpoint.write.publish import publish
from statefulspark.coordinator.durable import retention as job_retention
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.snapshots.pending import info_of
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

LOCATION = b"nothing of Spark's"
MAX_AGE_S = 600.0
HOUR_S = 3600.0


class Clocks:
    """The wall clock and the monotonic clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_s, self.monotonic_s = 1_700_000_000.0, 50.0
        monkeypatch.setattr(job_retention, "time", SimpleNamespace(time=lambda: self.wall_s, monotonic=lambda: self.monotonic_s))

    def wait(self, seconds: float) -> None:
        self.wall_s += seconds
        self.monotonic_s += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = open_store(f"file://{tmp_path}/job")
    ensure_job(store, "job", 32)
    return store


def driver(store: ObjectStore, *, max_age_s: float | None = MAX_AGE_S) -> DurableJob:
    return DurableJob(
        store=store, open_store=open_store, job_id="job", name="job", max_parallelism=32, backend="memory",
        lineage=begin_attempt(store, now_ms=1, open_store=open_store), savepoint_dir=None, retained=9, max_age_s=max_age_s,
    )  # fmt: skip


def due(durable: DurableJob) -> bool:
    return durable.retention_due


def take(store: ObjectStore, durable: DurableJob, number: int, clocks: Clocks) -> None:
    """A checkpoint with nothing in it but Spark's location."""
    store.put(f"{paths.checkpoint_folder(number)}/spark-location", LOCATION)
    metadata = _metadata(number, durable.attempt).model_copy(update={"created_ms": int(clocks.wall_s * 1000), "duration_ms": 0})
    path = publish(store, metadata, None)
    durable.completed_checkpoint(metadata, info_of(metadata, path, sync_ms=3, uploaded_bytes=5))


def test_an_idle_job(store: ObjectStore, clocks: Clocks) -> None:
    """Old checkpoints go when they exceed the age, one by one; the newest one never. Nothing is listed before."""
    durable = driver(store)
    assert due(durable), "those of earlier drivers are not known"
    durable.clean(None, tuple)
    for number in (1, 2, 3):
        take(store, durable, number, clocks)
        clocks.wait(60)
    assert not due(durable)
    clocks.wait(MAX_AGE_S - 179)
    for left in ([2, 3], [3]):
        assert due(durable)
        durable.clean(None, tuple)
        assert checkpoint_ids(store) == left
        assert [info.id for info in durable.completed()] == left
        assert not due(durable)
        clocks.wait(60)
    clocks.wait(1e9)
    assert not due(durable)
    durable.clean(None, tuple)
    assert checkpoint_ids(store) == [3]


def test_checkpoints_of_earlier_drivers(store: ObjectStore, clocks: Clocks) -> None:
    first = driver(store)
    for number in (1, 2):
        take(store, first, number, clocks)
    clocks.wait(MAX_AGE_S + 1)
    second = driver(store)
    assert due(second)
    second.clean(None, tuple)
    assert checkpoint_ids(store) == [2]


def test_no_limit(store: ObjectStore, clocks: Clocks) -> None:
    durable = driver(store, max_age_s=None)
    for number in (1, 2):
        take(store, durable, number, clocks)
    clocks.wait(1e9)
    assert not due(durable)
    durable.clean(None, tuple)
    assert checkpoint_ids(store) == [1, 2]


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_clock_that_is_set_by_an_hour(store: ObjectStore, clocks: Clocks, jump_s: float) -> None:
    """No checkpoint goes before its time, neither when the clock is set nor when it is set right again."""
    durable = driver(store)
    take(store, durable, 1, clocks)
    clocks.wait(60)
    take(store, durable, 2, clocks)
    durable.clean(None, tuple)
    for change_s in (jump_s, -jump_s):
        clocks.wall_s += change_s
        assert not due(durable)
        durable.clean(None, tuple)
        assert checkpoint_ids(store) == [1, 2]
    clocks.wait(MAX_AGE_S)
    durable.clean(None, tuple)
    assert checkpoint_ids(store) == [2]


def test_checkpoints_that_are_taken_while_the_clock_is_late(store: ObjectStore, clocks: Clocks) -> None:
    """Their time of completion is an hour early, and so is the time that they are compared with."""
    durable = driver(store)
    clocks.wall_s -= HOUR_S
    for number in (1, 2):
        take(store, durable, number, clocks)
    clocks.wait(MAX_AGE_S - 1)
    durable.clean(None, tuple)
    assert checkpoint_ids(store) == [1, 2]


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_driver_that_starts_with_a_wrong_clock(store: ObjectStore, clocks: Clocks, jump_s: float) -> None:
    """The newest checkpoint stays, and what it restores."""
    first = driver(store)
    for number in (1, 2):
        take(store, first, number, clocks)
    clocks.wall_s += jump_s
    second = driver(store)
    second.clean(None, tuple)
    take(store, second, 3, clocks)
    clocks.wall_s -= jump_s
    second.clean(None, tuple)
    assert checkpoint_ids(store)[-1] == 3
    assert driver(store).base_url == f"{store.url}/chk-3"


def test_nothing_goes_while_another_checkpoint_is_chosen_to_restore(store: ObjectStore, clocks: Clocks) -> None:
    """The newest one may be damaged, and the one before it too old."""
    durable = driver(store)
    for number in (1, 2):
        take(store, durable, number, clocks)
    clocks.wait(MAX_AGE_S + 1)
    with durable._retention.held():
        durable.clean(None, tuple)
        assert checkpoint_ids(store) == [1, 2]
    durable.clean(None, tuple)
    assert checkpoint_ids(store) == [2]
