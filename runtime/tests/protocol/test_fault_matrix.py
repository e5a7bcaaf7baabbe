"""The fault matrix of a driver: faults at each call of storage of a checkpoint, a savepoint and a cancellation.

The call fails, is answered too late or not at all, the clock jumps an hour, or the driver is frozen until another one has taken over.
Afterwards every row counts once, and nothing is missing. docs/testing.md says where the other cells of the matrix are.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from runtime.tests.depth import examples, left_to_test_all
from runtime.tests.faulty_calls import Faults

from statefulspark.checkpoint.gc.collecting import collect_garbage
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.errors import StatefulSparkError
from statefulspark.storage.open import open_store

from .conftest import Start
from .test_replaced_drivers import check_all_rows_count_once, checkpoint, finish, run
from .world import Driver, World

HOUR_S = 3600.0
_KINDS = ("failed", "lost", "late", "down", "full", "denied", "clock forward", "clock back", "frozen")
_ACTIONS = ("checkpoint", "savepoint", "cancel")
_QUICK = [("checkpoint", "lost"), ("checkpoint", "frozen"), ("savepoint", "late"), ("savepoint", "clock forward"), ("cancel", "lost")]

_STEP = examples(5, 1)
"""`make test` takes every fifth call, which ones depends on the case."""


class Life:
    """A job whose driver runs one action while storage, the clock or another driver do something at one of its calls.

    Args:
        world: The job.
        start: Starts a driver of it.
        kind: What happens.
        clock: The world whose clock all drivers read.
        monkeypatch: Puts the faults before the stores that drivers open.
    """

    def __init__(self, world: World, start: Callable[[int], Driver], kind: str, clock: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.kind = world, kind
        self._start, self._clock = start, clock
        happens = {"clock forward": self._jump, "clock back": self._jump, "frozen": self._freeze}.get(kind)
        inner = world.store
        self.job = Faults(kind, 0, opener=lambda _: inner, happens=happens)
        # Calls of the savepoint's folder count together with those of the job's.
        self.savepoints = Faults(kind, 0, happens=happens, names=self.job.names, late=self.job.late)
        world.store = self.job.open("")
        monkeypatch.setattr("statefulspark.testing.local_cluster.open_store", self.savepoints.open)
        self.newer: list[Driver] = []
        self.driver = start(2)
        run(self.driver, 4)
        checkpoint(self.driver)
        run(self.driver, 4)

    def _jump(self, _: Faults, __: str, act: Callable[[], Any]) -> Any:
        self._clock.clock_s += HOUR_S if self.kind == "clock forward" else -HOUR_S
        return act()

    def _freeze(self, _: Faults, __: str, act: Callable[[], Any]) -> Any:
        self.newer.append(self.restarted())
        run(self.newer[0], 4)
        checkpoint(self.newer[0])
        return act()

    def restarted(self) -> Driver:
        """Another driver, which begins anew if the state of the job is gone."""
        driver = self._start(2)
        if driver.coordinator.view().committed < 0:
            self.world.sink.clear()
            self.world.seen.clear()
        return driver

    def act(self, action: str, at: int) -> tuple[object, int]:
        """Run an action; returns its outcome and the number of calls."""
        before = self.job.calls
        self.job.at = self.savepoints.at = before + at if at else 0
        try:
            outcome = self._outcome(action)
        finally:
            self.job.at = self.savepoints.at = 0
        return outcome, self.job.calls - before

    def _outcome(self, action: str) -> object:
        if action != "cancel":
            return self.driver.checkpoint((self.world.folder / "savepoints").as_uri() if action == "savepoint" else None)
        try:
            self.driver.coordinator.delete_state()
        except StatefulSparkError as error:
            return error
        return None

    def finish(self, *, same_driver: bool) -> None:
        """Run the rest of the job, under the same driver or another one, and check it."""
        driver = self.newer[0] if self.newer else self.driver if same_driver else self.restarted()
        run(driver, 4)
        checkpoint(driver)
        for write in self.job.late:
            with suppress(StatefulSparkError):
                write()
        finish(driver)
        check_all_rows_count_once(self.world)
        driver.start_slot(0)
        checkpoint(driver)
        result = collect_garbage(self.world.store.url, open_store=open_store, now_s=time.time() + 1e6, older_than_s=86_400, dry_run=True)
        assert result.missing == {}
        for metadata in (self.world.folder / "savepoints").glob("*/_metadata"):
            assert verify(metadata.parent.as_uri()).sound
        for each in (driver, self.driver):
            each.close()


@pytest.mark.parametrize("world", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("action", "kind"),
    [*_QUICK, *left_to_test_all((action, kind) for action in _ACTIONS for kind in _KINDS if (action, kind) not in _QUICK)],
)
def test_each_call_of_storage(world: World, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str, kind: str) -> None:
    """The job goes on under the same driver, under the next one, and under the one that has taken over."""
    monkeypatch.setattr("statefulspark.coordinator.snapshots.pending.time", world.clock())
    at, calls, outcomes = 0, 1, Counter[str]()
    while at <= calls:  # the first life has no fault, and says how many calls there are
        one = World(folder=tmp_path / f"life-{at}", backend="filesystem", input=[(f"key-{n % 5}", 10 * n) for n in range(20)])
        life = Life(one, partial(start, world=one), kind, world, monkeypatch)
        outcome, made = life.act(action, at)
        calls = made if not at else calls
        outcomes[type(outcome).__name__] += 1
        life.finish(same_driver=action != "cancel" and at % 2 == 0)
        at += _STEP if at else 1 + len(action + kind) % _STEP
    assert calls >= 4, outcomes
    assert kind.startswith("clock") or len(outcomes) > 1, outcomes
