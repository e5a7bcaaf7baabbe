"""Snapshots of heap state beside batches: they are written while the store goes on, or with asyncSnapshots: false before it does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statefulspark.rpc.messages.slots import SnapshotPart
from statefulspark.state.store.heap_store import HeapStore

from .one_slot import UID, Coordinator, Count, Slot, counts, stored_counts

BATCHES = [[1, 2, 2], [2, 3], [1, 2, 4], [3, 3]]


@contextmanager
def heap_slot(tmp_path: Path, coordinator: Coordinator, *, async_snapshots: bool) -> Iterator[Slot]:
    slot = Slot(tmp_path / "slot", coordinator, 1 << 20, Count(), backend="filesystem", async_snapshots=async_snapshots)
    yield slot
    slot.close()


def uploaded(slot: Slot, part: SnapshotPart, folder: Path) -> list[int]:
    """The counts in a checkpoint."""
    folder.mkdir()
    for file in part.state.files:
        slot.job.get_file(f"chk-1/{file.path}", folder / file.name)
    return stored_counts(HeapStore(folder))


def test_batches_go_into_the_store_while_its_snapshot_is_written(tmp_path: Path, coordinator: Coordinator) -> None:
    """Nothing is held in front of it: each settled batch is in the store, and the snapshot has the batch at which it began."""
    (tmp_path / "slot").mkdir()
    with heap_slot(tmp_path, coordinator, async_snapshots=True) as slot:
        slot.run(0, BATCHES[0])
        slot.begin_snapshot(0)
        while slot.service._gate._inside is not None:
            time.sleep(0.001)
        for number in (1, 2, 3):
            slot.run(number, BATCHES[number])
            slot.settle(number)
            assert stored_counts(slot.store) == counts(BATCHES[: number + 1])
        assert not slot.service.keyed_steps[UID].backend._layers.holding
        part = slot.end_snapshot()
        assert uploaded(slot, part, tmp_path / "copied") == counts(BATCHES[:1])
        slot.begin_snapshot(3)
        assert slot.end_snapshot().state.private[0].name == "entries"


def test_without_async_snapshots_a_batch_waits_until_the_snapshot_is_written(tmp_path: Path, coordinator: Coordinator) -> None:
    """It does not begin before, though its changes could be held; the snapshot reports the delay."""
    (tmp_path / "slot").mkdir()
    with heap_slot(tmp_path, coordinator, async_snapshots=False) as slot:
        slot.run(0, BATCHES[0])
        slot.begin_snapshot(0)
        results: list[tuple[int, int]] = []
        batch = threading.Thread(target=lambda: results.extend(slot.run(1, BATCHES[1])))
        batch.start()
        batch.join(0.3)
        assert batch.is_alive()
        assert results == []
        part = slot.end_snapshot()
        batch.join(30)
        assert results == [(2, 3), (3, 1)]
        assert part.flush_ms >= 300
        assert uploaded(slot, part, tmp_path / "copied") == counts(BATCHES[:1])


@pytest.mark.parametrize("async_snapshots", [True, False])
def test_a_slot_that_stops_while_a_snapshot_is_written_does_not_hang(
    tmp_path: Path, coordinator: Coordinator, async_snapshots: bool
) -> None:
    """The store is closed under the snapshot, which still has its entries, and uploads none of them: the job has ended."""
    (tmp_path / "slot").mkdir()
    with heap_slot(tmp_path, coordinator, async_snapshots=async_snapshots) as slot:
        slot.run(0, BATCHES[0])
        slot.begin_snapshot(0)
        closing = threading.Thread(target=slot.service.close)
        closing.start()
        slot.wait_until_canceled()
        slot.store.go_on.set()
        closing.join(30)
        assert not closing.is_alive()
        slot.wait_until_ended()
        assert coordinator.done == [], "the slot is lost, which is no failure of storage"
        assert slot.uploads() == []
