"""A checkpoint or savepoint that takes too long is canceled in the slots and leaves nothing, and the job goes on without a lost or repeated row."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from statefulspark.checkpoint.gc.collecting import collect_garbage
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.snapshots.pending import CheckpointTimes
from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.storage.open import open_store

from .conftest import Start
from .test_lives import expected, rows_of
from .world import Driver, World, poll_until, state_of


class Frozen:
    """A slot that stops before its next upload until `resume`."""

    def __init__(self, driver: Driver, slot: int, method: str) -> None:
        self.reached, self._go_on = threading.Event(), threading.Event()
        uploader = driver.slots[slot]._uploader
        send = getattr(uploader, method)

        def upload(*args: Any, **named: Any) -> Any:
            self.reached.set()
            assert self._go_on.wait(60)
            return send(*args, **named)

        self._restore: Callable[[], None] = lambda: setattr(uploader, method, send)
        setattr(uploader, method, upload)

    def resume(self) -> None:
        self._restore()
        self._go_on.set()


def _run(driver: Driver) -> None:
    batch = driver.plan(9)
    assert batch is not None
    driver.run(batch)


@pytest.mark.parametrize("world", ["rocksdb"], indirect=True)
@pytest.mark.parametrize("kind", ["checkpoint", "savepoint"])
def test_a_frozen_slot(world: World, start: Start, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The uploads of the other slot go at once. Those of the frozen one do not begin when it continues. What it shares with the last checkpoint stays."""
    monkeypatch.setattr("statefulspark.slot.service._CANCEL_WAIT_S", 0.1)
    world.input = rows_of(Random(5))
    driver = start(2)
    _run(driver)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    _run(driver)
    savepoints = world.folder / "savepoints"
    before = {info.key for info in world.store.list("")}
    frozen = Frozen(driver, 1, "upload" if kind == "checkpoint" else "upload_savepoint")
    request = driver.coordinator.snapshots.request(savepoints.as_uri() if kind == "savepoint" else None)
    driver.coordinator.poll()
    assert frozen.reached.wait(30)

    def uploads() -> set[str]:
        new = {info.key for info in world.store.list("")} - before
        return {key for key in new if key.startswith(("chk-", "shared/"))} | {
            f"{folder}/{name}"
            for folder, _, names in os.walk(savepoints)
            for name in names  # not rglob, which fails where a folder is being deleted
        }

    poll_until(lambda: bool(uploads()), driver)
    snapshots = driver.coordinator._checkpoints._snapshots
    monkeypatch.setattr(snapshots, "_timeout_s", 0.0)
    poll_until(request.done.is_set, driver)
    monkeypatch.undo()
    assert isinstance(request.result[0], UnavailableError)
    poll_until(lambda: not uploads(), driver)
    frozen.resume()
    _run(driver)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    assert world.store.list("chk-2/") == []
    result = collect_garbage(world.store.url, open_store=open_store, now_s=time.time() + 1e6, older_than_s=86_400, dry_run=True)
    assert result.missing == {}
    assert not [each for each in result.plan.garbage if each.kind in ("shared file", "checkpoint file", "savepoint file")]
    driver.start_slot(0)
    driver.start_slot(1)
    while (batch := driver.plan(9)) is not None:
        driver.run(batch)
    assert isinstance(driver.checkpoint(), CheckpointInfo)
    given = Counter((key, number) for rows in world.sink.values() for key, kind, number, *_ in rows if kind == "row")
    assert given == Counter((key, number) for key, kind, number in expected(world.input).elements() if kind == "row")
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input).items())


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_a_bad_savepoint_target_harms_no_checkpoint(world: World, start: Start, tmp_path: Path) -> None:
    """It is tried once, is no failed checkpoint, and the checkpoint that is due is taken after it, although the least pause is an hour."""
    (tmp_path / "file").touch()
    world.input = rows_of(Random(6))
    driver = start(1)
    schedule = driver.coordinator._checkpoints
    schedule._times = CheckpointTimes(interval_s=3600.0, timeout_s=60.0, min_pause_s=3600.0)
    _run(driver)
    schedule._due_s = 0.0
    outcome: list[object] = []

    def take() -> None:
        try:
            outcome.append(driver.coordinator.snapshots.take((tmp_path / "file" / "below").as_uri(), 60.0, lambda: None))
        except StatefulSparkError as error:
            outcome.append(error)

    taking = threading.Thread(target=take)
    taking.start()
    while not driver.coordinator.snapshots:  # before anyone polls, so that the savepoint comes first
        time.sleep(0.01)
    poll_until(lambda: bool(outcome), driver)
    taking.join()
    assert isinstance(outcome[0], InvalidInputError), outcome[0]
    assert "Not a directory" in str(outcome[0])
    poll_until(lambda: driver.coordinator.view().last_checkpoint is not None, driver)
    view = driver.coordinator.view()
    assert (view.failed_checkpoints, view.snapshot_totals["savepoint"].failed) == (0, 1)
