"""Random lives of a job on the real coordinator and slots, with garbage collected after every batch and every death."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from random import Random
from types import SimpleNamespace

import pytest

from statefulspark.checkpoint.catalog import check_presence
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.checkpoint.gc.collecting import collect_garbage
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import UnavailableError
from statefulspark.storage.open import open_store

from .conftest import Start
from .test_lives import Life, expected, rows_of
from .world import Driver, World, state_of

_DAY_S = 86_400.0


class CollectedLife(Life):
    """Collections take every object for old, so what stays does so because something references or uses it."""

    def __init__(self, world: World, start: Start, chance: Random) -> None:
        self.deleted: Counter[str] = Counter()
        super().__init__(world, start, chance)

    def _started(self) -> Driver:
        if self.world.drivers and self.driver._closed:
            # A dead driver publishes nothing. In this process its thread may have checked its files and be about to write ``_metadata``.
            self.driver.coordinator._checkpoints._snapshots._pool.shutdown()
        self._collect()
        driver = super()._started()
        self._collect()
        return driver

    def _between_batches(self) -> None:
        self._collect()
        super()._between_batches()
        self._collect()

    def _collect(self) -> None:
        if self.world.store.head("_job") is None:
            return
        result = collect_garbage(
            self.world.store.url, open_store=open_store, now_s=time.time() + 10 * _DAY_S, older_than_s=_DAY_S, dry_run=False
        )
        assert result.missing == {}
        self.deleted.update(each.kind for each in result.plan.garbage)


@pytest.mark.parametrize(("world", "seed"), [pytest.param("memory", 0, marks=pytest.mark.exhaustive), ("memory", 1)], indirect=["world"])
def test_no_collection_costs_a_row(world: World, start: Start, seed: int) -> None:
    """Output and state are those of an undisturbed job, and lives leave garbage that is deleted."""
    chance = Random(1000 + seed)
    world.input = rows_of(chance)
    life = CollectedLife(world, start, chance)
    life.live()
    life.finish()
    given = Counter((key, kind, number) for rows in world.sink.values() for key, kind, number, *_ in rows)
    assert given == expected(world.input), world.deaths
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())
    assert life.deleted["changelog"] > 0


@pytest.mark.parametrize("world", ["memory", "rocksdb"], indirect=True)
def test_a_checkpoint_of_a_driver_that_was_suspended(world: World, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the check that all files exist and the publication two days go by, and its files are collected: nobody relies on the checkpoint."""
    world.input = rows_of(Random(3))
    driver = start(2)
    suspended_s = 0.0
    clock = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() + suspended_s)
    monkeypatch.setattr("statefulspark.coordinator.snapshots.pending.time", clock)
    for number in range(3):
        batch = driver.plan(9)
        assert batch is not None
        driver.run(batch)
        if number == 1:
            assert isinstance(driver.checkpoint(), CheckpointInfo)

    def suspend(metadata: CheckpointMetadata, key: str, sizes: Mapping[str, int]) -> None:
        nonlocal suspended_s
        check_presence(metadata, key, sizes)
        suspended_s += 2 * _DAY_S
        now_s = time.time() + suspended_s
        result = collect_garbage(world.store.url, open_store=open_store, now_s=now_s, older_than_s=_DAY_S, dry_run=False)
        assert any(each.key.startswith("chk-2/") for each in result.plan.garbage)

    with monkeypatch.context() as patch:
        patch.setattr("statefulspark.checkpoint.write.publish.check_presence", suspend)
        outcome = driver.checkpoint()
    assert isinstance(outcome, UnavailableError)
    assert "took longer than 60 s" in str(outcome)
    driver.close()
    driver = start(3)
    while (batch := driver.plan(9)) is not None:
        driver.run(batch)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())
    assert [info.key for info in world.store.list("chk-2/")] == []
