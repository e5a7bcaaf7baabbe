"""Changelogs of slots that got the rules of one batch in different orders stay in storage: whatever reads them later takes those of one order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from statefulspark.checkpoint.catalog import checkpoint_ids, load
from statefulspark.checkpoint.formats import paths
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import UnavailableError
from statefulspark.testing.inputs import BROADCAST

from .conftest import Start
from .test_broadcast_lives import copies, reordered, step
from .world import UID, Driver, World

FIRST_ORDER = ({"a": 2}, {"number": 2})
OTHER_ORDER = ({"a": 1}, {"number": 2})
ROWS = [BROADCAST(("a", 1, False, 0)), BROADCAST(("a", 2, False, 0)), *[(0, f"key-{number}") for number in range(8)]]


@pytest.fixture(params=["named in order", "named in reverse"])
def names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of objects say nothing about their age, so the newest may be the first or the last of a listing."""
    numbers: Iterator[int] = iter(range(1, 10**6)) if request.param == "named in order" else iter(range(10**6, 0, -1))
    monkeypatch.setattr(paths, "uuid4", lambda: SimpleNamespace(hex=f"{next(numbers):012x}" + "0" * 20))


def _begin(world: World) -> None:
    world.step = step(None)
    World.__post_init__(world)


def _planned(driver: Driver) -> int:
    batch = driver.plan(20)
    assert batch is not None
    return batch


def _run_next(world: World, driver: Driver) -> None:
    world.input += [(1, "key-1")]
    driver.run(_planned(driver))
    driver.complete()


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_batch_that_ended_in_two_orders_is_not_adopted(world: World, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """No order is complete, although there is a changelog of every slot; the sink of the next driver reads a part, so its slots depend on them."""
    _begin(world)
    world.input = list(ROWS)
    driver = start(3)
    batch = _planned(driver)
    with monkeypatch.context() as patch:
        reordered(patch, {2})
        with pytest.raises(UnavailableError, match="in different orders"):
            driver.run(batch)
    driver.close()
    driver = start(3)
    world.seen = {}
    assert driver.plan(20) == batch
    driver.run(batch, reads=1)
    driver.complete()
    _run_next(world, driver)
    assert copies(driver) == [FIRST_ORDER] * 3


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_the_order_that_is_complete_is_adopted(world: World, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """All slots acknowledged the first one, and one slot another one in the next query, in which the driver died."""
    _begin(world)
    world.input = list(ROWS)
    driver = start(3)
    batch = _planned(driver)
    driver.run(batch, deliver=False)
    driver.coordinator.query.before_start()
    with monkeypatch.context() as patch:
        reordered(patch, {0, 1, 2})
        driver._execution += 1
        driver.run_task(batch, next(iter(driver.partitions(batch))), 0)
    driver.close()
    driver = start(3)
    assert driver.plan(20) == batch
    driver.run(batch, reads=1)
    driver.complete()
    _run_next(world, driver)
    assert copies(driver) == [FIRST_ORDER] * 3


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("world", ["memory"], indirect=True)
@pytest.mark.parametrize("disputed", [True, False])
def test_a_committed_batch_stays_what_it_was_if_its_checkpoint_is_damaged(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch, disputed: bool
) -> None:
    """No record names its changelogs: those of the query that committed it count, whether an earlier query got as far as all slots or not."""
    _begin(world)
    world.retained = 3
    world.input = [BROADCAST(("z", 0, False, 0)), (0, "key-1")]
    driver = start(3)
    driver.run(_planned(driver))
    driver.complete()
    _run_next(world, driver)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    world.input += ROWS
    batch = _planned(driver)
    if disputed:
        with monkeypatch.context() as patch:
            reordered(patch, {2})
            with pytest.raises(UnavailableError, match="in different orders"):
                driver.run(batch)
    else:
        driver.run(batch, deliver=False)
    with monkeypatch.context() as patch:
        reordered(patch, {0, 1, 2})
        driver.coordinator.query.before_start()
        world.seen = {}
        driver.run(batch)
        driver.complete()
    committed = [({"z": 0, "a": 1}, {"number": 3})] * 3
    assert copies(driver) == committed
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    driver.close()
    key = paths.metadata_key(paths.checkpoint_folder(checkpoint_ids(world.store)[-1]))
    file = paths.resolve_reference(key, load(world.store, key).operator_state[0].path)
    damaged = bytearray(world.store.get(file))
    damaged[-1] ^= 1
    world.store.put(file, bytes(damaged))
    driver = start(3)
    _run_next(world, driver)
    assert copies(driver) == committed


@pytest.mark.parametrize("world", ["memory"], indirect=True)
@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_step_that_comes_back_has_its_broadcast_state(world: World, start: Start, parallelism: int) -> None:
    """As it has its keyed state, also if a checkpoint of the job without the step was taken meanwhile, and at another parallelism."""
    world.allow_non_restored = True
    _begin(world)
    world.input = list(ROWS)
    driver = start(2)
    driver.run(_planned(driver))
    driver.complete()
    _run_next(world, driver)
    driver.close()
    # The first checkpoint takes the state from changelogs, the second one from the first.
    for slots in (parallelism, 2):
        world.step, world.steps = replace(step(None), uid="other"), ("other",)
        World.__post_init__(world)
        driver = start(slots)
        _run_next(world, driver)
        assert isinstance(driver.checkpoint(), CheckpointInfo)
        driver.close()
    world.step, world.steps = step(None), (UID,)
    World.__post_init__(world)
    driver = start(parallelism)
    _run_next(world, driver)
    assert copies(driver) == [FIRST_ORDER] * parallelism
