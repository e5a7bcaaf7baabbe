"""The recorder with real storage: what a driver records its successor shows, and nothing that storage does reaches the job."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from runtime.tests.api_server.fake_job import FakeJob
from runtime.tests.job.metrics.test_collection import acknowledgement, reporting
from structlog.testing import capture_logs

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.records import AttemptClaim
from statefulspark.checkpoint.gc.plan import JobFolder, plan_gc
from statefulspark.checkpoint.lineage.fencing import claim_attempt
from statefulspark.checkpoint.write.removal import remove_state
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.batches.totals import SnapshotTotals
from statefulspark.coordinator.controls import CheckpointInfo, JobError, JobState, JobStatus
from statefulspark.coordinator.core.life import BatchParameters
from statefulspark.coordinator.durable.fence import Fence
from statefulspark.coordinator.view import CoordinatorView
from statefulspark.errors import CorruptDataError, FencedError, UnavailableError, UserFunctionError
from statefulspark.job.history import recorder as module
from statefulspark.job.history.recorder import HistoryRecorder
from statefulspark.job.history.storing import StoredHistory
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

INFO = CheckpointInfo(id=1, path="s3://b/chk-1", batch=3, completed_ms=1_500, duration_ms=9, sync_ms=1, size_bytes=20, uploaded_bytes=2)
BOOM = UserFunctionError("the user's function raised", uid="u", key_group=3, user_traceback="Traceback:\nValueError: boom")


class Clock:
    """Both clocks of a recorder; the wall clock may be set."""

    def __init__(self, start_ms: int) -> None:
        self.ms = start_ms
        self.s = 50.0

    def pass_s(self, seconds: float) -> None:
        self.s += seconds
        self.ms += int(seconds * 1000)


class Watched:
    """A coordinator and a job of which only what the history reads is real."""

    def __init__(self) -> None:
        self.log = BatchLog(delays_ms={"u": cast("Any", None)})
        self.job = FakeJob(parallelism=2)
        self.failed = 0

    def commit(self, batch: int) -> None:
        self.log.begin(BatchParameters(batch=batch, watermarks={"u": None}, processing_time_ms=0))
        for slot in (0, 1):
            self.log.acknowledge(acknowledgement(slot, batch))
        self.log.commit_current()

    def view(self) -> CoordinatorView:
        log = self.log
        return cast(
            "CoordinatorView",
            _View(
                rows_in=log.rows_in, rows_out=log.rows_out, commits=log.commits, totals=log.totals, failed_checkpoints=self.failed,
                snapshot_totals={"checkpoint": SnapshotTotals(completed=1)}, slots=tuple(reporting()), states=(_State(1, "u"), _State(2, "v")),
            ),
        )  # fmt: skip

    def status(self) -> JobStatus:
        return self.job.status()


class _View:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class _State:
    def __init__(self, state_id: int, uid: str) -> None:
        self.state_id, self.uid = state_id, uid


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "job").as_uri())


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads wait for the end; tests sample and save themselves."""
    monkeypatch.setattr(module, "SAMPLE_S", 600.0)
    monkeypatch.setattr(module, "SAVE_S", 600.0)
    monkeypatch.setattr(module, "CLOSE_S", 30.0)


def driver(store: ObjectStore, clock: Clock) -> tuple[HistoryRecorder, Watched, AttemptClaim]:
    """Claim the next attempt and begin to record."""
    claim = claim_attempt(store, now_ms=clock.ms)
    recorder = HistoryRecorder(
        StoredHistory(store, claim.attempt, Fence(store, claim).check), now_ms=lambda: clock.ms, now_s=lambda: clock.s
    )
    watched = Watched()
    recorder.start(watched.view, watched.status)
    return recorder, watched, claim


def keys(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list(paths.HISTORY_PREFIX)]


def test_a_sample_has_what_happened_since_the_last_one(store: ObjectStore) -> None:
    """Counters as differences, gauges as they are; of what the slots of test_collection report."""
    clock = Clock(1_000_000)
    recorder, watched, _ = driver(store, clock)
    for batch in range(3):
        clock.pass_s(5)
        watched.commit(batch)
        if batch == 1:
            recorder.query_failed(BOOM)
            watched.failed = 1
        recorder.sample()
    first, second, third = recorder.history().samples
    assert [one.to_ms - one.from_ms for one in (first, second, third)] == [5000] * 3
    assert (first.rows_in, second.rows_in, second.rows_out, second.batches, second.step_batches) == (10, 10, 8, 1, 2)
    assert second.parts == {"process": 1.0, "durable": 0.5}
    assert (second.slot_wait_s, second.send_wait_s) == (0.25, 2.0)
    assert first.counts == {"u: seen": 6.0, "u: size.count": 4.0, "u: size.sum": 11.0}, "of both slots"
    assert second.counts == dict.fromkeys(first.counts, 0.0), "nothing was counted since"
    assert third.states == {"u": 1400, "v": 600}, "both slots that report; state 9 is unknown"
    assert [(one.failures, one.failed_checkpoints, one.checkpoints) for one in (first, second, third)] == [(0, 0, 1), (1, 1, 0), (0, 0, 0)]
    recorder.close(JobState.FAILED, JobError(reason="UserFunction", message=str(BOOM)), keep=False)
    kinds = [(event.kind, event.reason) for event in recorder.history().events]
    assert kinds == [("driver", ""), ("query", "UserFunction"), ("failed", "UserFunction")]
    assert "ValueError: boom" in recorder.history().events[1].message


def test_the_next_driver_shows_what_the_last_one_recorded(store: ObjectStore) -> None:
    """And takes over its object: the folder has one history, whatever the number of restarts."""
    clock = Clock(1_000_000)
    recorder: HistoryRecorder | None = None
    for attempt in (1, 2, 3):
        recorder, watched, _ = driver(store, clock)
        clock.pass_s(5)
        watched.commit(attempt)
        recorder.sample()
        recorder.snapshot_ended(INFO, False)
        recorder.snapshot_ended(UnavailableError("slot 1 does not answer"), True, "canonical")
        recorder.returned(f"attempt {attempt} went back", CorruptDataError("cut", path="chk-3"))
        recorder.close(JobState.SUSPENDED, None, keep=True)
        clock.pass_s(3600)
        assert keys(store) == [f"history/{attempt:08d}"]
    assert recorder is not None
    last = recorder.history()
    assert sum(one.rows_in for one in last.samples) == 3 * 10
    assert sum(one.active_ms for one in last.samples) == 3 * 5000, "the hours between are not counted"
    assert [one.error for one in last.snapshots] == [None, "Unavailable: slot 1 does not answer"] * 3
    assert [one.format for one in last.snapshots] == ["native", "canonical"] * 3
    kinds = [(event.kind, event.reason) for event in last.events]
    assert kinds == [("driver", ""), ("return", "CorruptData"), ("state", "")] * 3


def test_a_fenced_driver_changes_nothing_of_its_successor(store: ObjectStore) -> None:
    """Neither if it notices, nor if it was paused between its check and its write."""
    clock = Clock(1_000_000)
    first, _, claim = driver(store, clock)
    clock.pass_s(5)
    first.sample()
    first.save()
    second, _, _ = driver(store, clock)
    clock.pass_s(5)
    second.sample()
    second.save()
    kept = store.get("history/00000002")
    with pytest.raises(FencedError):
        first.save()
    assert keys(store) == ["history/00000002"]
    late = StoredHistory(store, claim.attempt, lambda: None)  # its check has succeeded before the pause
    late.save(first.history())
    assert store.get("history/00000002") == kept
    second.query_failed(BOOM)
    second.close(JobState.SUSPENDED, None, keep=True)
    third, _, _ = driver(store, clock)
    third.save()
    assert any(event.kind == "query" for event in third.history().events), "the newest attempt's history is read"
    assert keys(store) == ["history/00000003"]
    third.close(JobState.SUSPENDED, None, keep=False)


@pytest.mark.parametrize(("version", "size_bytes"), [(4, 20), (5, 20), (5, 9 << 20)])
def test_a_history_that_cannot_be_read_starts_empty_with_one_warning(store: ObjectStore, version: int, size_bytes: int) -> None:
    """A damaged one is replaced, also one that is too long to be read; one of a later release stays for that release."""
    clock = Clock(1_000_000)
    claim_attempt(store, now_ms=1)
    store.put("history/00000001", b"SSJH" + bytes([version]) + bytes(size_bytes))
    with capture_logs() as logs:
        recorder, _, _ = driver(store, clock)
        clock.pass_s(5)
        recorder.sample()
        recorder.save()
        recorder.save()
        recorder.close(JobState.SUSPENDED, None, keep=True)
    assert len([entry for entry in logs if entry["log_level"] == "warning"]) == 1, logs
    assert len(recorder.history().samples) == 2
    assert keys(store) == (["history/00000002"] if version == 4 or size_bytes > 20 else ["history/00000001", "history/00000002"])


class Stuck:
    """A store whose writes of the history do not return until the test ends, or fail."""

    def __init__(self, store: ObjectStore, error: Exception | None = None) -> None:
        self._store = store
        self.error = error
        self.entered, self.go_on = threading.Event(), threading.Event()

    def put(self, key: str, data: bytes) -> None:
        if key.startswith(paths.HISTORY_PREFIX):
            self.entered.set()
            if self.error is not None:
                raise self.error
            assert self.go_on.wait(60)
        self._store.put(key, data)

    def delete(self, keys: Iterable[str]) -> None:
        self._store.delete(keys)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_storage_that_hangs_holds_up_neither_samples_nor_the_end(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.05)
    stuck, clock = Stuck(store), Clock(1_000_000)
    recorder, watched, _ = driver(cast("ObjectStore", stuck), clock)
    saving = threading.Thread(target=recorder.save)
    saving.start()
    assert stuck.entered.wait(30)
    clock.pass_s(5)
    watched.commit(0)
    recorder.sample()
    recorder.snapshot_ended(INFO, False)
    recorder.query_failed(BOOM)
    assert recorder.history().samples[-1].rows_in == 10
    recorder.close(JobState.FAILED, None, keep=True)
    stuck.go_on.set()
    saving.join(30)
    assert not saving.is_alive()


def test_storage_that_fails_is_told_once_and_tried_again(store: ObjectStore) -> None:
    """The job never learns of it."""
    stuck, clock = Stuck(store, UnavailableError("the bucket does not answer")), Clock(1_000_000)
    with capture_logs() as logs:
        recorder, _, _ = driver(cast("ObjectStore", stuck), clock)
        for _ in range(3):
            recorder._quietly(recorder.save)
        stuck.error = None
        stuck.go_on.set()
        recorder.close(JobState.SUSPENDED, None, keep=True)
    assert len([entry for entry in logs if entry["log_level"] == "warning"]) == 1, logs
    assert keys(store) == ["history/00000001"]


def test_nothing_is_written_after_the_state_was_deleted(store: ObjectStore) -> None:
    """Cancel with DELETE removes the history with everything else, and waits for a write that has begun."""
    stuck, clock = Stuck(store), Clock(1_000_000)
    recorder, _, claim = driver(cast("ObjectStore", stuck), clock)
    saving = threading.Thread(target=recorder.save)
    saving.start()
    assert stuck.entered.wait(30)
    closing = threading.Thread(target=lambda: recorder.close(JobState.CANCELED, None, keep=False))
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    stuck.go_on.set()
    closing.join(30)
    saving.join(30)
    remove_state(store, claim, now_ms=clock.ms)
    recorder.save()
    assert keys(store) == []


def test_garbage_collection_keeps_the_history(store: ObjectStore) -> None:
    """However old it is, also that of a driver that was fenced."""
    for attempt in (1, 2):
        store.put(paths.history_key(attempt), b"x")
    folder = JobFolder(objects=store.list(""), snapshots={}, records={}, attempt=2, since=1, last_batch=-1)
    plan = plan_gc(folder, now_s=1e11, older_than_s=86_400)
    assert plan.garbage == ()
    assert set(plan.totals) == {"referenced"}


def test_a_clock_that_is_set_back_makes_no_overlap_and_no_wrong_rate(store: ObjectStore) -> None:
    clock = Clock(1_000_000_000)
    recorder, watched, _ = driver(store, clock)
    for batch in range(6):
        clock.pass_s(5)
        if batch == 2:
            clock.ms -= 3_600_000
        watched.commit(batch)
        recorder.sample()
    samples = recorder.history().samples
    assert all(one.to_ms <= other.from_ms < other.to_ms for one, other in itertools.pairwise(samples))
    assert [one.active_ms for one in samples] == [5000] * 6
    recorder.close(JobState.SUSPENDED, None, keep=True)
    second, _, _ = driver(store, clock)
    second.save()
    second.close(JobState.SUSPENDED, None, keep=True)
    third, _, _ = driver(store, clock)
    third.save()
    assert any(event.kind == "driver" for event in third.history().events[1:]), "what was stored reads"
    third.close(JobState.SUSPENDED, None, keep=False)


def test_a_rescale_is_an_event(store: ObjectStore) -> None:
    clock = Clock(1_000_000)
    recorder, watched, _ = driver(store, clock)
    watched.job.rescale(3, 1)
    recorder.sample()
    recorder.sample()
    assert [event.message for event in recorder.history().events if event.kind == "rescale"] == [
        "rescaled from 2 to 3 slots, paused for 3.9 s"
    ]
    assert recorder.history().samples[-1].slots == 3
    recorder.close(JobState.SUSPENDED, None, keep=False)
