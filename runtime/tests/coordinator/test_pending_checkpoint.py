"""A checkpoint that a dead slot cost is told apart from one that storage cost."""

from __future__ import annotations

import time

import pytest

from statefulspark.checkpoint.formats.metadata import InlineEntries, SlotState
from statefulspark.checkpoint.write.inline import InlineLimits
from statefulspark.checkpoint.write.progress import UploadedBytes
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.ongoing_work import PendingSnapshot
from statefulspark.coordinator.slots.state import LOST, READY, Slot
from statefulspark.coordinator.snapshots.pending import CheckpointCoordinator, PendingCheckpoint, SlotLostError
from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.rpc.messages.heartbeat import SlotReport
from statefulspark.rpc.messages.slot_control import Snapshot
from statefulspark.rpc.messages.slots import SnapshotDone, SnapshotPart


class _Job:
    """Slots that answer or do not."""

    def __init__(self) -> None:
        self.outcomes: list[CheckpointInfo | StatefulSparkError] = []
        self.alive = True
        self.snapshots = CheckpointCoordinator(call_slot=self._call, publish=self._publish, finished=self._finished, timeout_s=60)

    def _call(self, slot: Slot, request: Snapshot) -> None:
        assert request.epoch == slot.epoch
        if not self.alive:
            raise UnavailableError(f"slot {slot.index} did not answer")

    def _publish(self, progress: PendingCheckpoint, slots: tuple[SlotState, ...]) -> CheckpointInfo:
        raise UnavailableError(f"storage did not take {progress.checkpoint_id} of {len(slots)} slots")

    def _finished(self, progress: PendingCheckpoint, outcome: CheckpointInfo | StatefulSparkError) -> None:
        assert progress.checkpoint_id == 1
        self.outcomes.append(outcome)

    def start(self, state: str = READY) -> None:
        progress = PendingCheckpoint(
            checkpoint_id=1,
            batch=0,
            request=None,
            started_s=time.monotonic(),
            created_ms=0,
            frame={},
            savepoint_folder=None,
            base_checkpoint_id=None,
            full=False,
            waiting={0},
            epochs={0: 5},
        )
        self.snapshots.start(progress, [Slot(0, epoch=5, state=state)], {0: {}})


@pytest.fixture
def job() -> _Job:
    return _Job()


def test_a_slot_that_does_not_answer(job: _Job) -> None:
    """The executor died and the driver has not noticed yet."""
    job.alive = False
    job.start()
    assert [type(outcome) for outcome in job.outcomes] == [SlotLostError]


def test_a_slot_that_is_being_started(job: _Job) -> None:
    """There is nobody to ask."""
    job.start(LOST)
    assert [type(outcome) for outcome in job.outcomes] == [SlotLostError]


def test_a_slot_that_dies_while_it_uploads(job: _Job) -> None:
    """Another incarnation has taken over."""
    job.start()
    assert job.outcomes == []
    job.snapshots.expire(gone={0: 6})
    assert [type(outcome) for outcome in job.outcomes] == [SlotLostError]


def test_a_slot_whose_upload_fails(job: _Job) -> None:
    """That is storage, and counts."""
    job.start()
    job.snapshots.slot_done(SnapshotDone(slot=0, epoch=5, checkpoint_id=1, error="UnavailableError: no storage"))
    assert [type(outcome) for outcome in job.outcomes] == [UnavailableError]


def test_a_slot_whose_target_is_wrong(job: _Job) -> None:
    """Nobody tries again what cannot succeed."""
    job.start()
    job.snapshots.slot_done(SnapshotDone(slot=0, epoch=5, checkpoint_id=1, error="s3://nope: no usable credentials", refused=True))
    (outcome,) = job.outcomes
    assert isinstance(outcome, InvalidInputError)
    assert str(outcome) == "slot 0: s3://nope: no usable credentials"


def test_what_is_being_taken_can_be_seen_until_it_ends(job: _Job) -> None:
    """With the slots that have done their part."""
    job.start()
    assert job.snapshots.pending() == PendingSnapshot(id=1, kind="checkpoint", started_ms=0, slots_done=0, slots=1)
    job.snapshots.slot_done(SnapshotDone(slot=0, epoch=5, checkpoint_id=1, error="UnavailableError: no storage"))
    assert job.snapshots.pending() is None


def test_the_bytes_in_flight_are_those_of_slots_that_still_upload_this_checkpoint(job: _Job) -> None:
    """A report of an earlier checkpoint, and one of a slot that is done, would count twice."""
    job.start()

    def reporting(slot: int, checkpoint_id: int) -> Slot:
        uploading = UploadedBytes(checkpoint_id=checkpoint_id, uploaded_bytes=30, total_bytes=100)
        report = SlotReport(
            restore_ms=0, rss_bytes=0, pss_bytes=0, baseline_bytes=0, state_bytes=0, coverage=1, states={}, steps={}, uploading=uploading
        )
        return Slot(slot, epoch=5, state=READY, report=report)

    def bytes_of(*slots: Slot) -> tuple[int, int]:
        pending = job.snapshots.pending(slots)
        assert pending is not None
        return pending.uploaded_bytes, pending.total_bytes

    assert bytes_of(Slot(0)) == (0, 0)
    assert bytes_of(reporting(0, 0)) == (0, 0)
    assert bytes_of(reporting(0, 1), reporting(1, 1)) == (30, 100), "slot 1 was not asked, or is done"


def test_entries_beyond_the_limit_are_not_held() -> None:
    """However many slots there are, the driver never holds more than the limit and one message; the sizes stay, for the error."""
    progress = PendingCheckpoint(
        checkpoint_id=1,
        batch=0,
        request=None,
        started_s=time.monotonic(),
        created_ms=0,
        frame={},
        savepoint_folder=None,
        base_checkpoint_id=None,
        full=False,
        limits=InlineLimits(state_bytes=100, checkpoint_bytes=100),
        waiting=set(range(9)),
        epochs={},
    )
    for slot in range(9):
        entries = InlineEntries.of(bytes(30))
        state = SlotState(slot=slot, first=slot, last=slot, backend="memory", inline=entries)
        part = SnapshotPart(state=state, state_bytes={1: 30}, operator_state=None, sync_ms=0, flush_ms=0, upload_ms=0, uploaded_bytes=30)
        progress.take(slot, part)
        held = [each.inline for each in progress.states.values() if each.inline is not None]
        assert len(held) == (slot + 1 if slot < 3 else 0)
    assert progress.state_bytes == {slot: {1: 30} for slot in range(9)}
    assert not progress.waiting
