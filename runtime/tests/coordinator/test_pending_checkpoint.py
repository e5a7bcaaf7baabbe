"""A checkpoint that a dead slot cost is told apart from one that storage cost."""

from __future__ import annotations

import time

import pytest

from statefulspark.checkpoint.formats.metadata import SlotState
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.pending_checkpoint import CheckpointCoordinator, PendingCheckpoint, SlotLostError
from statefulspark.coordinator.slot_state import LOST, READY, Slot
from statefulspark.errors import StatefulSparkError, UnavailableError
from statefulspark.rpc.messages.slot_control import Snapshot
from statefulspark.rpc.messages.slots import SnapshotDone


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
