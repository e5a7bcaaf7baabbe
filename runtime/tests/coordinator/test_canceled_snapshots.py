"""Canceled checkpoints: slots are asked, and uploads deleted, until none can come; nothing is deleted that may still be published."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from runtime.tests.checkpoint.bucket import Bucket, BucketStore

from statefulspark.checkpoint.formats.metadata import SlotState
from statefulspark.checkpoint.write.canceled import CanceledUploads
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.slots.state import READY, Slot
from statefulspark.coordinator.snapshots import canceled as canceled_snapshots
from statefulspark.coordinator.snapshots.canceled import PAUSES_S, CanceledSnapshots
from statefulspark.coordinator.snapshots.pending import CheckpointCoordinator, PendingCheckpoint
from statefulspark.errors import CorruptDataError, FencedError, StatefulSparkError, UnavailableError
from statefulspark.rpc.messages.slot_control import CancelSnapshot, Snapshot
from statefulspark.rpc.messages.slots import SnapshotDone, SnapshotPart

NONCE = "0123456"
MINE = (f"shared/0000000003-{NONCE}{'0' * 25}", f"chk-3/slot-0-{NONCE}0/MANIFEST")
OTHERS = ("chk-2/_metadata", f"shared/0000000002-{'0' * 32}", f"shared/0000000003-{'f' * 32}")


@dataclass
class Job:
    """Two slots, a storage and a clock."""

    store: BucketStore = field(default_factory=lambda: Bucket().open("mem://bucket/job"))
    now_s: float = 0.0
    asked: list[tuple[int, CancelSnapshot]] = field(default_factory=list)
    silent: set[int] = field(default_factory=set)
    fenced: set[int] = field(default_factory=set)
    outage: StatefulSparkError | None = None

    def __post_init__(self) -> None:
        self.canceled = CanceledSnapshots(self._cancel, lambda: self.now_s)
        for key in (*MINE, *OTHERS):
            self.store.put(key, b"")

    def _cancel(self, slot: Slot, request: CancelSnapshot) -> None:
        self.asked.append((slot.index, request))
        if slot.index in self.silent:
            raise UnavailableError("frozen")
        if slot.index in self.fenced:
            raise FencedError("another epoch")

    def _open(self) -> BucketStore:
        if self.outage is not None:
            raise self.outage
        return self.store

    def add(self) -> None:
        uploads = CanceledUploads(open_store=self._open, checkpoint_id=3, nonce=NONCE)
        self.canceled.add(uploads, [Slot(0, epoch=5), Slot(1, epoch=6)])
        self.settle()

    def after(self, seconds: float) -> None:
        self.now_s += seconds
        self.canceled.poll()
        self.settle()

    def settle(self) -> None:
        worker = self.canceled._worker
        if worker is not None:
            worker.join(30)

    def asked_since(self) -> list[int]:
        slots = sorted(slot for slot, _ in self.asked)
        self.asked.clear()
        return slots

    def keys(self) -> list[str]:
        return [info.key for info in self.store.list("")]

    def upload_late(self) -> None:
        self.store.put(MINE[0], b"late")


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.canceled.close()


def test_slots_are_asked_and_uploads_deleted_at_once(job: Job) -> None:
    job.add()
    assert job.asked[0][1] == CancelSnapshot(epoch=5, checkpoint_id=3)
    assert job.asked_since() == [0, 1]
    assert job.keys() == sorted(OTHERS)


def test_what_a_silent_slot_uploads_later(job: Job) -> None:
    """It is asked until it answers, and deleted from time to time, as a storage may execute a request late too; then forgotten."""
    job.silent, job.fenced = {0}, {1}
    job.add()
    assert job.asked_since() == [0, 1]
    for number, pause_s in enumerate(PAUSES_S):
        job.upload_late()
        job.after(pause_s - 1)
        assert MINE[0] in job.keys()
        if number == 1:
            job.silent = set()
        job.after(1)
        assert job.keys() == sorted(OTHERS)
        assert job.asked_since() == ([0] if number < 2 else []), "the other one is of another incarnation, so it has ended"
    job.upload_late()
    job.after(1e9)
    assert MINE[0] in job.keys(), "retention deletes it"
    assert job.canceled._canceled == []


def test_a_report_of_a_canceled_snapshot(job: Job) -> None:
    """A slot that was frozen continues, and tells when its uploads have ended."""
    job.silent = {0, 1}
    job.add()
    job.upload_late()
    job.asked.clear()
    job.canceled.reported(SnapshotDone(slot=1, epoch=6, checkpoint_id=4, error="of another one"))
    job.after(1)
    assert MINE[0] in job.keys()
    job.canceled.reported(SnapshotDone(slot=1, epoch=6, checkpoint_id=3, error="canceled"))
    job.after(1)
    assert job.keys() == sorted(OTHERS)
    assert job.asked_since() == [0]
    for _ in PAUSES_S:
        job.canceled.reported(SnapshotDone(slot=1, epoch=6, checkpoint_id=3, error="canceled"))
        job.after(1)
    job.upload_late()
    job.after(sum(PAUSES_S))
    assert job.keys() == sorted(OTHERS), "reports do not use up the later deletions"


@pytest.mark.parametrize("problem", [UnavailableError("503"), RuntimeError("a bug")])
def test_a_storage_that_does_not_answer(job: Job, problem: StatefulSparkError) -> None:
    """Later it does."""
    job.outage = problem
    job.add()
    assert MINE[0] in job.keys()
    job.outage = None
    job.after(PAUSES_S[0])
    assert job.keys() == sorted(OTHERS)


def test_the_end_of_the_job(job: Job) -> None:
    """Once more, without the slots, which have been stopped; afterwards nothing begins."""
    job.silent = {0, 1}
    job.add()
    job.upload_late()
    job.asked.clear()
    job.canceled.close()
    assert job.keys() == sorted(OTHERS)
    assert job.asked == []
    job.upload_late()
    job.after(1e6)
    assert MINE[0] in job.keys()


def test_a_storage_that_hangs_at_the_end(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends all the same."""
    monkeypatch.setattr(canceled_snapshots, "_CLOSE_S", 0.05)
    job.add()
    go_on = threading.Event()
    monkeypatch.setattr(job, "_open", lambda: go_on.wait(30) and job.store)
    job.canceled._canceled[0].uploads = CanceledUploads(open_store=job._open, checkpoint_id=3, nonce=NONCE)
    job.canceled.close()
    hanging = [thread for thread in threading.enumerate() if thread.name == "canceled-snapshots"]
    assert [thread.daemon for thread in hanging] == [True]
    go_on.set()
    hanging[0].join(30)


def test_failures_without_end(job: Job) -> None:
    """Memory is bounded."""
    job.silent = {0, 1}
    for _ in range(canceled_snapshots._SNAPSHOTS_MAX + 10):
        job.add()
    assert len(job.canceled._canceled) == canceled_snapshots._SNAPSHOTS_MAX


class Publication:
    """A checkpoint of one slot, whose publication the test lets end as it likes."""

    def __init__(self) -> None:
        self.publishing, self.go_on = threading.Event(), threading.Event()
        self.ends: Callable[[PendingCheckpoint], None] = lambda _: None
        self.outcomes: list[CheckpointInfo | StatefulSparkError] = []
        self.done = threading.Event()
        self.snapshots = CheckpointCoordinator(
            call_slot=lambda _slot, request: self.requests.append(request), publish=self._publish, finished=self._finished, timeout_s=0
        )
        self.requests: list[Snapshot] = []
        self.progress = PendingCheckpoint(
            checkpoint_id=1,
            batch=0,
            request=None,
            started_s=time.monotonic() - 1,
            created_ms=0,
            frame={},
            savepoint_folder=None,
            base_checkpoint_id=None,
            full=False,
            waiting={0},
            epochs={0: 5},
        )
        self.snapshots.start(self.progress, [Slot(0, epoch=5, state=READY)], {0: {}})

    def _publish(self, progress: PendingCheckpoint, slots: tuple[SlotState, ...]) -> CheckpointInfo:
        assert len(slots) == 1
        self.publishing.set()
        assert self.go_on.wait(30)
        self.ends(progress)
        return CheckpointInfo(
            id=1, kind="checkpoint", path="p", batch=0, completed_ms=0, duration_ms=0, sync_ms=0, size_bytes=0, uploaded_bytes=0
        )

    def _finished(self, _: PendingCheckpoint, outcome: CheckpointInfo | StatefulSparkError) -> None:
        self.outcomes.append(outcome)
        self.done.set()

    def answer(self) -> None:
        state = SlotState(slot=0, first=0, last=7, backend="memory")
        part = SnapshotPart(state=state, state_bytes=None, operator_state=None, sync_ms=0, flush_ms=0, upload_ms=0, uploaded_bytes=0)
        self.snapshots.slot_done(SnapshotDone(slot=0, epoch=5, checkpoint_id=1, part=part))


def test_a_checkpoint_that_is_being_published_is_not_canceled() -> None:
    """Its files must stay: its _metadata may appear at any moment. It ends as its publication does."""
    job = Publication()
    assert [request.nonce for request in job.requests] == [job.progress.nonce]
    job.answer()
    assert job.publishing.wait(30)
    job.snapshots.expire(gone={0: 6})
    assert job.outcomes == []
    job.go_on.set()
    assert job.done.wait(30)
    assert isinstance(job.outcomes[0], CheckpointInfo)


def test_an_answer_that_comes_after_the_timeout_publishes_nothing() -> None:
    """Its files are being deleted."""
    job = Publication()
    job.snapshots.expire()
    job.answer()
    assert not job.publishing.is_set()
    assert not job.progress.publishing
    assert [str(outcome) for outcome in job.outcomes] == ["checkpoint 1 took longer than 0 s"]


@pytest.mark.parametrize("sealed", [False, True])
def test_only_files_that_no_metadata_can_name_are_deleted(sealed: bool) -> None:
    """If the write of _metadata was begun and failed, it may have been stored, or be stored later."""

    def fail(progress: PendingCheckpoint) -> None:
        if sealed:
            progress.seal()
            raise UnavailableError("no answer")
        raise CorruptDataError("a file is missing", path="p")

    job = Publication()
    job.ends = fail
    job.go_on.set()
    job.answer()
    assert job.done.wait(30)
    assert job.progress.publishing is sealed


def test_the_end_of_the_job_while_a_checkpoint_is_being_published() -> None:
    """It may be complete soon."""
    job = Publication()
    job.answer()
    assert job.publishing.wait(30)
    job.snapshots.close()
    assert [type(outcome) for outcome in job.outcomes] == [FencedError]
    assert job.progress.publishing
    job.go_on.set()
