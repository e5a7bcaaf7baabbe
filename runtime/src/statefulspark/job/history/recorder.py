"""HistoryRecorder: samples a running job, hears of its snapshots and failures, and stores its history.

Nothing here may hold up a batch or end a job: sampling copies what the coordinator knows, storage is used by a thread of its own, and every
error ends in the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import structlog

from statefulspark.config.savepoints import SavepointFormat
from statefulspark.coordinator.controls import CheckpointInfo, JobError, JobState, JobStatus
from statefulspark.coordinator.history import EventKind, HistoryEvent, HistorySample, JobHistory
from statefulspark.coordinator.slots.rescales import Rescale
from statefulspark.coordinator.view import CoordinatorView
from statefulspark.errors import FencedError, StatefulSparkError
from statefulspark.job.history.collecting import Counts, Interval, counts_of, sample_of
from statefulspark.job.history.events import EventLog, snapshot_of
from statefulspark.job.history.samples import Timeline
from statefulspark.job.history.storing import StoredHistory

SAMPLE_S: Final = 5.0
"""Time between samples, in seconds."""
SAVE_S: Final = 30.0
"""Least time between writes, in seconds; a driver that is killed loses at most what came later."""
CLOSE_S: Final = 5.0
"""The end of the job waits no longer for the last write."""

_log = structlog.get_logger("statefulspark.history")


def _now_ms() -> int:
    return int(time.time() * 1000)


class HistoryRecorder:
    """The history of a running job; called by many threads.

    Args:
        stored: Of the job's folder.
        now_ms: The wall clock, milliseconds since the epoch.
        now_s: A clock that is never set, in seconds.
    """

    def __init__(self, stored: StoredHistory, *, now_ms: Callable[[], int] = _now_ms, now_s: Callable[[], float] = time.monotonic) -> None:
        self._stored = stored
        self._now_ms = now_ms
        self._now_s = now_s
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._closing = threading.Event()
        self._loaded = False
        self._warned = False
        self._timeline = Timeline()
        self._events = EventLog()
        self._counts = Counts()
        self._failures = 0
        self._rescaled: Rescale | None = None
        self._sampled = now_ms(), now_s()
        self._started = False
        self._view: Callable[[], CoordinatorView]
        self._status: Callable[[], JobStatus]

    def start(self, view: Callable[[], CoordinatorView], status: Callable[[], JobStatus]) -> None:
        """Begin to sample and to write, in threads that end with `close`.

        Args:
            view: Returns what the coordinator knows now.
            status: Returns the job's status.
        """
        self._view, self._status, self._started = view, status, True
        first = status()
        self._rescaled = first.last_rescale
        self.event("driver", f"the driver of attempt {first.attempt} has started with {first.parallelism} slots")
        threading.Thread(target=self._sample_repeatedly, name="history", daemon=True).start()
        threading.Thread(target=self._save_repeatedly, name="history-storage", daemon=True).start()

    def _sample_repeatedly(self) -> None:
        while not self._closing.wait(SAMPLE_S):
            self._quietly(self.sample)

    def _save_repeatedly(self) -> None:
        self._quietly(self._load_first)
        while not self._closing.wait(SAVE_S):
            self._quietly(self.save)

    def _quietly(self, action: Callable[[], None]) -> None:
        try:
            action()
        except FencedError:
            return  # the batches and the idle watch report it
        except Exception as error:  # noqa: BLE001  no error of what is only shown may end the job, or its own thread
            if not self._warned:
                _log.warning("the job's history was not recorded; the driver tries again", error=f"{type(error).__name__}: {error}"[:300])
            self._warned = True

    def _load_first(self) -> None:
        """The page shows from the beginning what earlier drivers have recorded; if storage does not answer, `save` tries again."""
        with self._saving:
            self._load()

    def _load(self) -> None:
        """Put what earlier drivers have recorded before the own; called before the first write, which deletes it in storage. The caller holds ``_saving``."""
        if self._loaded:
            return
        before = self._stored.load()
        with self._lock:
            own = self._timeline.all()
            start_ms = own[0].from_ms if own else self._sampled[0]
            self._timeline = Timeline([*_until(before.samples, start_ms), *own])
            self._events = EventLog([*before.snapshots, *self._events.snapshots], [*before.events, *self._events.events])
        self._loaded = True

    def sample(self) -> None:
        """Add a sample of the time since the last one."""
        view, status = self._view(), self._status()
        counts = counts_of(view)
        with self._lock:
            (then_ms, then_s), now = self._sampled, (self._now_ms(), self._now_s())
            # The wall clock may have been set back meanwhile; intervals never overlap.
            from_ms = max(then_ms, self._timeline.end_ms)
            interval = Interval(from_ms=from_ms, to_ms=max(now[0], from_ms + 1), active_ms=int((now[1] - then_s) * 1000))
            self._timeline.add(sample_of(interval, self._counts, counts, view, status, failures=self._failures))
            self._sampled, self._counts, self._failures = now, counts, 0
            rescaled = status.last_rescale if status.last_rescale != self._rescaled else None
            self._rescaled = status.last_rescale
        if rescaled is not None:
            self.event("rescale", _rescale_text(rescaled))

    def snapshot_ended(self, outcome: CheckpointInfo | StatefulSparkError, savepoint: bool, wanted: SavepointFormat = "native") -> None:
        """Record a checkpoint or savepoint that was completed or has failed, and the format that was wanted."""
        with self._lock:
            self._events.snapshots.append(snapshot_of(outcome, savepoint=savepoint, wanted=wanted, now_ms=self._now_ms()))

    def returned(self, message: str, reason: StatefulSparkError | None) -> None:
        """Record that the job goes back to an earlier checkpoint."""
        self.event("return", message, reason=JobError.of(reason).reason if reason is not None else "")

    def query_failed(self, error: BaseException) -> None:
        """Record a failure of the query."""
        self._failed("query", error)

    def slot_failed(self, slot: int, error: BaseException) -> None:
        """Record a failure of a slot."""
        self._failed("slot", error, slot)

    def slot_restored(self, slot: int, message: str) -> None:
        """Record that a slot was lost and serves again."""
        with self._lock:
            self._failures += 1
        self.event("slot", message, reason="SlotLost", slot=slot)

    def _failed(self, kind: EventKind, error: BaseException, slot: int | None = None) -> None:
        with self._lock:
            self._failures += 1
        found = JobError.of(error)
        self.event(kind, found.message, reason=found.reason, slot=slot)

    def event(self, kind: EventKind, message: str, *, reason: str = "", slot: int | None = None) -> None:
        """Record an event now."""
        now_ms = self._now_ms()
        event = HistoryEvent(first_ms=now_ms, last_ms=now_ms, kind=kind, message=message, reason=reason, slot=slot)
        with self._lock:
            self._events.add(event)

    def history(self) -> JobHistory:
        """Return the history as of now."""
        with self._lock:
            return JobHistory(samples=self._timeline.all(), snapshots=tuple(self._events.snapshots), events=tuple(self._events.events))

    def save(self) -> None:
        """Write the history; after `close`, nothing.

        Raises:
            FencedError: Another driver runs the job; nothing was written.
            UnavailableError: Storage did not answer.
        """
        with self._saving:
            if not self._closing.is_set():
                self._load()
                self._stored.save(self.history())

    def close(self, ended: JobState, error: JobError | None, *, keep: bool) -> None:
        """End the recording. Waits a few seconds for storage at most.

        Args:
            ended: How the job has ended.
            error: Why it failed, None if it did not.
            keep: True to write the history a last time; False if the job's state is about to be deleted, so that nothing is written after it.
        """
        if self._started:
            self._quietly(self.sample)
        if error is not None:
            self.event("failed", error.message, reason=error.reason)
        else:
            self.event("state", f"the job has ended: {ended.value}")
        if keep:
            last = threading.Thread(target=lambda: self._quietly(self.save), name="history-last", daemon=True)
            last.start()
            last.join(CLOSE_S)
        self._closing.set()
        if self._saving.acquire(timeout=CLOSE_S):
            self._saving.release()


def _rescale_text(rescaled: Rescale) -> str:
    paused = f", paused for {rescaled.pause_ms / 1000:.1f} s" if rescaled.pause_ms is not None else ""
    return f"rescaled from {rescaled.from_parallelism} to {rescaled.to_parallelism} slots{paused}"


def _until(samples: Iterable[HistorySample], end_ms: int) -> list[HistorySample]:
    """Samples of before ``end_ms``, where the clock has been set back since."""
    return [replace(sample, to_ms=min(sample.to_ms, end_ms)) for sample in samples if sample.from_ms < end_ms]
