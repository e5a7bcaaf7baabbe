"""A snapshot that is canceled ends, does not begin, or gives way to a later one; its uploads stop within a large file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statefulspark.errors import FencedError, UnavailableError
from statefulspark.rpc.messages.slot_control import CancelSnapshot
from statefulspark.slot.snapshot_turns import SnapshotTurns
from statefulspark.storage import pieces

from .one_slot import Coordinator, Count, Slot

CANCELED = "ClosedError: checkpoint {} was canceled"


@pytest.fixture
def slot(tmp_path: Path, coordinator: Coordinator) -> Iterator[Slot]:
    (tmp_path / "slot").mkdir()
    slot = Slot(tmp_path / "slot", coordinator, 1 << 20, Count())
    yield slot
    slot.close()


def cancel(slot: Slot, checkpoint_id: int, *, epoch: int = 1) -> None:
    slot.service.cancel_snapshot(CancelSnapshot(epoch=epoch, checkpoint_id=checkpoint_id))


class PausedUpload:
    """Lets an upload wait after its first part, and counts the parts of the files that are uploaded."""

    def __init__(self, slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.files: list[Path] = []
        self.parts = 0
        monkeypatch.setattr(pieces, "PIECE_BYTES", 16)
        put_file = type(slot.job.inner).put_file  # type: ignore[attr-defined]  # a RetryingStore

        def slow(store: Any, key: str, path: Path, cancellation: Any = None) -> None:
            check = cancellation.check
            self.files.append(path)

            def pause() -> None:
                self.parts += 1
                if self.parts == 2:
                    self.reached.set()
                    assert self.go_on.wait(30)
                check()

            monkeypatch.setattr(cancellation, "check", pause)
            put_file(store, key, path, cancellation)

        monkeypatch.setattr(type(slot.job.inner), "put_file", slow)  # type: ignore[attr-defined]


def test_an_upload_stops_between_two_parts_of_a_file(slot: Slot, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other part of the file is sent, no object appears, and the next checkpoint is complete."""
    slot.run(0, [1, 2])
    upload = PausedUpload(slot, monkeypatch)
    slot.service._uploader._threads = 1
    slot.begin_snapshot(0)
    slot.store.go_on.set()
    assert upload.reached.wait(30)
    sizes = [path.stat().st_size for path in upload.files]
    canceling = threading.Thread(target=cancel, args=(slot, 1))
    canceling.start()
    slot.wait_until_canceled()
    assert canceling.is_alive(), "it waits for the upload to end"
    upload.go_on.set()
    canceling.join(30)
    assert coordinator.told.wait(30)
    assert (coordinator.done[-1].part, coordinator.done[-1].error) == (None, CANCELED.format(1))
    assert len(upload.files) == 1
    assert sizes[0] > 2 * 16
    assert slot.uploads() == []
    monkeypatch.undo()
    slot.run(1, [2])
    slot.begin_snapshot(1)
    assert {file.path.partition("/")[0] for file in slot.end_snapshot().state.private} == {"slot-0-00000000"}


def test_a_snapshot_that_waits_for_its_disk_uploads_nothing(slot: Slot, coordinator: Coordinator) -> None:
    """It was canceled before its files were written."""
    slot.run(0, [1])
    slot.begin_snapshot(0)
    threading.Thread(target=cancel, args=(slot, 1)).start()
    slot.wait_until_canceled()
    slot.store.go_on.set()
    assert coordinator.told.wait(30)
    assert coordinator.done[-1].error == CANCELED.format(1)
    assert slot.uploads() == []


def test_a_request_that_arrives_after_its_cancellation(slot: Slot, coordinator: Coordinator) -> None:
    """The slot was frozen, and both requests waited for it."""
    slot.run(0, [1])
    cancel(slot, 1)
    with pytest.raises(FencedError, match="checkpoint 1 was canceled"):
        slot.begin_snapshot(0)
    slot.run(1, [1])
    slot.begin_snapshot(1)
    slot.end_snapshot()
    assert [done.checkpoint_id for done in coordinator.done] == [2]


def test_a_late_cancellation_leaves_the_next_snapshot_alone(slot: Slot) -> None:
    slot.run(0, [1])
    slot.begin_snapshot(0)
    slot.end_snapshot()
    slot.run(1, [1])
    slot.begin_snapshot(1)
    cancel(slot, 1)
    slot.end_snapshot()
    with pytest.raises(FencedError, match="epoch"):
        cancel(slot, 2, epoch=2)


def test_the_end_of_the_slot_cancels_its_snapshot(tmp_path: Path, coordinator: Coordinator) -> None:
    """Nothing is uploaded for a job that has ended."""
    slot = Slot(tmp_path, coordinator, 1 << 20, Count())
    slot.run(0, [1])
    slot.begin_snapshot(0)
    closing = threading.Thread(target=slot.service.close)
    closing.start()
    slot.wait_until_canceled()
    slot.store.go_on.set()
    closing.join(30)
    slot.wait_until_ended()
    assert coordinator.done == [], "the slot is lost, which is no failure of storage"
    assert slot.uploads() == []


def turns_in_thread(act: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(act())
        except (FencedError, UnavailableError) as error:
            outcome.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_turns() -> None:
    """A later snapshot cancels the one that runs and gets its turn; one that is canceled while it waits does not."""
    turns = SnapshotTurns()
    first = turns.begin(1, 0)
    with pytest.raises(UnavailableError):
        turns.begin(2, 0)
    assert first.canceled
    waiting, outcome = turns_in_thread(lambda: turns.begin(3, 30))
    turns.cancel(3)
    waiting.join(30)
    assert outcome == [FencedError]
    waiting, outcome = turns_in_thread(lambda: turns.begin(4, 30))
    turns.end()
    waiting.join(30)
    (fourth,) = outcome
    assert not fourth.canceled  # type: ignore[attr-defined]  # a Cancellation
    turns.close()
    assert fourth.canceled  # type: ignore[attr-defined]  # as above
