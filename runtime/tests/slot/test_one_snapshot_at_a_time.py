"""A slot takes one snapshot at a time, until it is uploaded, however long disk and storage take; batches go on meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statefulspark.errors import UnavailableError
from statefulspark.slot import service

from .one_slot import UID, Coordinator, Count, Slot, counts, stored_counts

EARLIER = "an earlier snapshot of the slot is still being taken"


@pytest.fixture
def slot(tmp_path: Path, coordinator: Coordinator) -> Iterator[Slot]:
    (tmp_path / "slot").mkdir()
    slot = Slot(tmp_path / "slot", coordinator, 1 << 20, Count(), backend="filesystem")
    yield slot
    slot.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_EARLIER_SNAPSHOT_WAIT_S", 0.1)


def snapshot_threads() -> int:
    return sum(thread.name == "snapshot" for thread in threading.enumerate())


@pytest.mark.usefixtures("impatient")
def test_snapshots_that_cannot_be_written_do_not_pile_up(slot: Slot, coordinator: Coordinator) -> None:
    """The disk stalls and the coordinator gives up on each: one thread and one frozen copy, and every batch goes on."""
    before = snapshot_threads()
    slot.run(0, [1, 2])
    slot.begin_snapshot(0)
    batches = [[1, 2]]
    for number in range(1, 6):
        batches.append([number, 7])
        slot.run(number, batches[-1])
        with pytest.raises(UnavailableError, match=EARLIER):
            slot.begin_snapshot(number)
        slot.settle(number)
        assert stored_counts(slot.store) == counts(batches)
    assert len(slot.store._snapshots) == 1  # type: ignore[attr-defined]  # a HeapStore
    assert snapshot_threads() - before == 1
    slot.store.go_on.set()
    assert coordinator.told.wait(30)
    slot.begin_snapshot(5)
    slot.end_snapshot()
    assert [(done.checkpoint_id, done.error) for done in coordinator.done] == [(1, "ClosedError: checkpoint 1 was canceled"), (6, None)]


def test_the_next_snapshot_waits_for_an_upload_and_holds_up_no_batch(slot: Slot, coordinator: Coordinator) -> None:
    """Two uploads never run at once. Whoever waits for one has no lock that a batch needs."""
    uploading, go_on = threading.Event(), threading.Event()
    running: list[int] = []
    most: list[int] = []
    upload = slot.service._uploader.upload

    def slow(*args: Any, **named: Any) -> Any:
        running.append(1)
        most.append(len(running))
        uploading.set()
        assert go_on.wait(30)
        try:
            return upload(*args, **named)
        finally:
            running.pop()

    slot.service._uploader.upload = slow  # type: ignore[method-assign]
    slot.run(0, [1])
    slot.begin_snapshot(0)
    slot.store.go_on.set()
    assert uploading.wait(30)
    slot.run(1, [1, 2])
    next_one = threading.Thread(target=slot.begin_snapshot, args=(1,))
    next_one.start()
    next_one.join(0.3)
    assert next_one.is_alive()
    slot.settle(1)
    assert stored_counts(slot.store) == counts([[1], [1, 2]]), "a commit is written while the request waits"
    go_on.set()
    next_one.join(30)
    assert not next_one.is_alive()
    slot.store.go_on.set()
    while len(coordinator.done) < 2:
        assert coordinator.told.wait(30)
    assert [done.error for done in coordinator.done] == ["ClosedError: checkpoint 1 was canceled", None], (
        "the later one cancels the earlier"
    )
    assert most == [1, 1]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fails", ["settling", "freezing", "uploading"])
def test_a_snapshot_that_fails_lets_the_next_one_begin(
    slot: Slot, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Wherever it fails: in the call, under the closed gate, or after the files were written."""

    def broken(*_args: object, **_named: object) -> None:
        raise UnavailableError("broken")

    slot.run(0, [1])
    with monkeypatch.context() as patched:
        owner, name = {
            "settling": (slot.service.keyed_steps[UID], "settle"),
            "freezing": (slot.store, "begin_snapshot"),
            "uploading": (slot.service._uploader, "upload"),
        }[fails]
        patched.setattr(owner, name, broken)
        if fails == "settling":
            with pytest.raises(UnavailableError, match="broken"):
                slot.begin_snapshot(0)
        else:
            slot.begin_snapshot(0)
            slot.store.go_on.set()
            assert coordinator.told.wait(30)
            assert coordinator.done[-1].error == "UnavailableError: broken"
    slot.begin_snapshot(0)
    assert slot.end_snapshot().state.private[0].name == "entries"


class AsksAgain(threading.Event):
    """Asks for the next snapshot while the slot still waits for the answer to its report."""

    def __init__(self, ask: Callable[[], None]) -> None:
        super().__init__()
        self.refused: list[UnavailableError] = []
        self._ask: Callable[[], None] | None = ask

    def set(self) -> None:
        ask, self._ask = self._ask, None
        try:
            if ask is not None:
                ask()
        except UnavailableError as error:
            self.refused.append(error)
        super().set()


@pytest.mark.usefixtures("impatient")
def test_a_report_that_is_not_answered_keeps_no_snapshot_waiting(slot: Slot, coordinator: Coordinator) -> None:
    """The coordinator may answer it only after it has begun the next checkpoint."""
    slot.run(0, [1])
    slot.begin_snapshot(0)
    coordinator.told = told = AsksAgain(lambda: slot.begin_snapshot(0))
    slot.end_snapshot()
    assert told.refused == []
    told.clear()
    slot.end_snapshot()
    assert len(coordinator.done) == 2
