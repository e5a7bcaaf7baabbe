"""CanceledSnapshots: stops the uploads of checkpoints and savepoints that failed, and deletes what they have uploaded.

A slot that was asked to cancel a snapshot answers when its uploads have ended. One that is frozen or cut off answers never, and uploads more when
it continues; so does a storage that has not answered. So slots are asked, and objects deleted, several times within a few hours, and once more
when a slot reports a snapshot that was canceled. Afterwards, and if the driver ends before, retention deletes what is left after a day.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import structlog

from statefulspark.checkpoint.transfers import in_parallel
from statefulspark.checkpoint.write.canceled import CanceledUploads
from statefulspark.coordinator.slots.state import Slot
from statefulspark.errors import FencedError, StatefulSparkError
from statefulspark.rpc.messages.slot_control import CancelSnapshot
from statefulspark.rpc.messages.slots import SnapshotDone

_log = structlog.get_logger("statefulspark.checkpoints")

PAUSES_S = (60.0, 600.0, 3600.0, 4 * 3600.0)
"""Seconds between two deletions of the uploads of one snapshot; after the last one no other follows."""
_SNAPSHOTS_MAX = 100
"""As many are remembered; a job whose checkpoints fail again and again leaves the oldest to retention."""
_THREADS = 16
_CLOSE_S = 10.0
"""The end of the job does not wait longer for a storage that does not answer."""


@dataclass(slots=True)
class _Canceled:
    uploads: CanceledUploads
    asked: dict[int, Slot]
    """Slots that have not answered."""
    next_s: float
    """Time of the next deletion by the monotonic clock; infinite after the last one."""
    pauses_s: list[float] = field(default_factory=lambda: list(PAUSES_S))
    reported: bool = False
    """True if a slot's uploads have ended since the last deletion."""

    def is_due(self, now_s: float) -> bool:
        return self.reported or self.next_s <= now_s

    def begin(self, now_s: float) -> None:
        """A deletion begins; a report that comes meanwhile leads to another one."""
        self.reported = False
        if self.next_s <= now_s:
            self.next_s = now_s + self.pauses_s.pop(0) if self.pauses_s else math.inf


class CanceledSnapshots:
    """Remembers canceled snapshots until their uploads cannot come any more. Thread-safe; works in a thread of its own.

    Args:
        cancel: Asks a slot to cancel a snapshot.
        clock: The monotonic clock in seconds; tests replace it.
    """

    def __init__(self, cancel: Callable[[Slot, CancelSnapshot], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._cancel = cancel
        self._clock = clock
        self._lock = threading.Lock()
        self._canceled: list[_Canceled] = []
        self._worker: threading.Thread | None = None
        self._closed = False

    def add(self, uploads: CanceledUploads, slots: Iterable[Slot]) -> None:
        """Stop the uploads of these slots and delete them, now and later."""
        asked = {slot.index: replace(slot, report=None) for slot in slots}  # a report may be large
        with self._lock:
            self._canceled.append(_Canceled(uploads, asked, self._clock()))
            del self._canceled[:-_SNAPSHOTS_MAX]
        self.poll()

    def reported(self, done: SnapshotDone) -> None:
        """A slot's uploads have ended; if they are of a canceled snapshot, they are deleted with the next `poll`."""
        with self._lock:
            for each in self._canceled:
                if each.uploads.checkpoint_id == done.checkpoint_id:
                    each.asked.pop(done.slot, None)
                    each.reported = True

    def poll(self) -> None:
        """Begin what is due, in the background."""
        with self._lock:
            is_busy = self._worker is not None and self._worker.is_alive()
            if self._closed or is_busy or not any(each.is_due(self._clock()) for each in self._canceled):
                return
            self._worker = self._started(self._run)

    def close(self) -> None:
        """Delete once more what was uploaded: the slots have been stopped. Waits a few seconds for storage."""
        with self._lock:
            self._closed = True
            if not self._canceled:
                return
        last = self._started(self._delete_all)
        last.join(_CLOSE_S)
        if last.is_alive():
            _log.warning("storage did not answer in time; retention deletes what canceled checkpoints have uploaded")

    @staticmethod
    def _started(run: Callable[[], None]) -> threading.Thread:
        # A daemon: the process must end even if storage does not answer.
        thread = threading.Thread(target=run, name="canceled-snapshots", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        now_s = self._clock()
        with self._lock:
            due = [each for each in self._canceled if each.is_due(now_s)]
            for each in due:
                each.begin(now_s)
        for each in due:
            self._stop(each)
            self._delete(each)
        with self._lock:
            self._canceled = [each for each in self._canceled if each.reported or each.next_s < math.inf]

    def _delete_all(self) -> None:
        with self._lock:
            left = list(self._canceled)
        for each in left:
            self._delete(each)

    def _stop(self, canceled: _Canceled) -> None:
        with self._lock:
            asked = list(canceled.asked.values())
        answered = in_parallel(lambda slot: self._answers(slot, canceled.uploads.checkpoint_id), asked, _THREADS)
        with self._lock:
            for slot, has_answered in zip(asked, answered, strict=True):
                if has_answered:
                    canceled.asked.pop(slot.index, None)

    def _answers(self, slot: Slot, checkpoint_id: int) -> bool:
        try:
            self._cancel(slot, CancelSnapshot(epoch=slot.epoch, checkpoint_id=checkpoint_id))
        except FencedError:
            return True  # that incarnation has ended, or is about to
        except StatefulSparkError as error:
            _log.info("slot did not cancel its snapshot", slot=slot.index, id=checkpoint_id, error=str(error)[:200])
            return False
        return True

    def _delete(self, canceled: _Canceled) -> None:
        number = canceled.uploads.checkpoint_id
        try:
            deleted = canceled.uploads.delete()
        except Exception as error:  # noqa: BLE001  the thread goes on with the next one, and retention deletes what is left
            _log.warning("the uploads of a canceled checkpoint were not deleted", id=number, error=str(error)[:200])
        else:
            if deleted:
                _log.info("deleted the uploads of a canceled checkpoint", id=number, objects=deleted)
