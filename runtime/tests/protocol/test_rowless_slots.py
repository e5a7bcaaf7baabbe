"""Slots without rows: one changelog proves it, written before the sink can commit the batch."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from statefulspark.coordinator.batches.changelogs import BatchChangelogs
from statefulspark.rpc.messages.batches import EmptyPartition, PartitionRun

from .conftest import Start
from .world import UID, World

_S = 20.0


@pytest.mark.parametrize("world", ["memory"], indirect=True)
def test_of_partitions_that_report_together_one_writes(world: World, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other returns when the changelog is durable, not before: after the last partition the sink commits."""
    writes: list[int] = []
    writing, goes_on = threading.Event(), threading.Event()
    write = BatchChangelogs.write_without_rows

    def slow(self: BatchChangelogs, batch: int, *rest: Any) -> Any:
        writes.append(batch)
        writing.set()
        assert goes_on.wait(_S)
        return write(self, batch, *rest)

    monkeypatch.setattr(BatchChangelogs, "write_without_rows", slow)
    world.input = [("key", 1)]
    driver = start(3)
    assert driver.plan(1) == 0
    for number, rows in enumerate(driver.partitions(0)):
        if rows.num_rows:
            driver.run_task(0, rows, number)

    def report(partition: int, attempt: int) -> None:
        driver._peer.call(EmptyPartition(uid=UID, batch=0, run=PartitionRun("1", partition, attempt)))

    report(0, 1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(report, 1, 2)
        assert writing.wait(_S)
        second = pool.submit(report, 1, 3)
        with pytest.raises(TimeoutError):
            second.result(0.1)
        goes_on.set()
        first.result(_S)
        second.result(_S)
    assert writes == [0]
    folder = driver.location / "commits"
    folder.mkdir()
    (folder / "0").write_text("{}")
    assert not driver.coordinator.poll()
    assert driver.coordinator.view().committed == 0
