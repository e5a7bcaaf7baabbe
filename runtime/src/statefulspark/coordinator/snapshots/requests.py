"""Requests for checkpoints and savepoints: from the caller who waits for one to the batch boundary at which it starts.

The lock is the coordinator's batch lock; see there for the order in which locks may be nested.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import FencedError, StatefulSparkError, UnavailableError

_RETRY_PAUSE_S = 0.2
_RETRY_PAUSE_MAX_S = 5.0
"""Pauses double: a slot that is being started is ready within a second, and a full disk stays full for longer."""
_CHECK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """A request for a checkpoint (``savepoint`` None) or for a savepoint in that folder URL ("" = the configured one)."""

    savepoint: str | None
    unpublished: bool = False
    """True for the files of a savepoint without ``_metadata``, which its caller converts."""
    origin: list[StoredCheckpoint] = field(default_factory=list)
    """These files, with the ``_metadata`` that was not stored."""
    withdrawn: threading.Event = field(default_factory=threading.Event)
    """Set when nobody waits for it any more."""
    done: threading.Event = field(default_factory=threading.Event)
    result: list[CheckpointInfo | StatefulSparkError] = field(default_factory=list)

    def finish(self, outcome: CheckpointInfo | StatefulSparkError) -> None:
        """Hand the outcome to the waiting caller."""
        self.result.append(outcome)
        self.done.set()


class SnapshotRequests:
    """The requests that no checkpoint has been started for yet, oldest first. Thread-safe.

    Args:
        lock: The coordinator's batch lock.
        savepoint_target: See `DurableJob.savepoint_target`.
    """

    def __init__(self, lock: threading.RLock, savepoint_target: Callable[[str | None], str]) -> None:
        self._lock = lock
        self._savepoint_target = savepoint_target
        self._waiting: list[SnapshotRequest] = []

    def savepoint_target(self, target: str | None) -> str:
        """Return the URL below which a savepoint goes; see `DurableJob.savepoint_target`."""
        return self._savepoint_target(target)

    def request(self, savepoint: str | None, *, unpublished: bool = False) -> SnapshotRequest:
        """Ask for a checkpoint at the next batch boundary, or for a savepoint below the URL ``savepoint``."""
        request = SnapshotRequest(savepoint=savepoint, unpublished=unpublished)
        with self._lock:
            self._waiting.append(request)
        return request

    def take(self, savepoint: str | None, timeout_s: float, check_open: Callable[[], None]) -> CheckpointInfo:
        """Ask for a snapshot and wait; one that fails because a slot is being started is asked for again.

        Args:
            savepoint: URL below which a savepoint goes; None for a checkpoint.
            timeout_s: for all attempts together.
            check_open: raises when the job has ended, or the caller must give way.

        Raises:
            UnavailableError: None was complete in time.
        """
        outcome = self._answered(savepoint, timeout_s, check_open).result[0]
        if isinstance(outcome, StatefulSparkError):
            raise outcome
        return outcome

    def take_unpublished(self, url: str, timeout_s: float, check_open: Callable[[], None]) -> tuple[CheckpointInfo, StoredCheckpoint]:
        """Take a savepoint below a URL without its ``_metadata``; the caller deletes its files.

        The other arguments and the errors are those of `take`.
        """
        request = self._answered(url, timeout_s, check_open, unpublished=True)
        outcome = request.result[0]
        if isinstance(outcome, StatefulSparkError):
            raise outcome
        return outcome, request.origin[0]

    def _answered(
        self, savepoint: str | None, timeout_s: float, check_open: Callable[[], None], *, unpublished: bool = False
    ) -> SnapshotRequest:
        deadline = time.monotonic() + timeout_s
        pause_s, failed = _RETRY_PAUSE_S, ""
        while True:
            check_open()
            request = self.request(savepoint, unpublished=unpublished)
            if not self._wait(request, deadline, check_open) and self.withdraw(request):
                raise UnavailableError(f"no checkpoint completed within {timeout_s:.0f} s{failed}")
            outcome = request.result[0]
            if not isinstance(outcome, UnavailableError) or time.monotonic() >= deadline:
                return request
            failed = f". The last attempt failed: {outcome}"
            time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
            pause_s = min(2 * pause_s, _RETRY_PAUSE_MAX_S)

    def _wait(self, request: SnapshotRequest, deadline: float, check_open: Callable[[], None]) -> bool:
        """Wait for an answer. False if there is none at the deadline; if ``check_open`` raises, nobody waits any more."""
        while not request.done.wait(min(_CHECK_S, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return False
            try:
                check_open()
            except StatefulSparkError:
                if self.withdraw(request):
                    raise
        return True

    def withdraw(self, request: SnapshotRequest) -> bool:
        """Drop a request whose caller no longer waits; a snapshot that has started for it continues. False if it has just been answered."""
        with self._lock:
            if request.done.is_set():
                return False
            request.withdrawn.set()
            if request in self._waiting:
                self._waiting.remove(request)
            return True

    def __bool__(self) -> bool:
        """True if a request waits. The caller holds the lock."""
        return bool(self._waiting)

    def next(self) -> SnapshotRequest | None:
        """Remove and return the oldest request, None if there is none. The caller holds the lock."""
        return self._waiting.pop(0) if self._waiting else None

    def close(self) -> None:
        """Fail the requests that still wait: the job is ending."""
        for request in self._waiting:
            request.finish(FencedError("the job is stopping"))
