"""SnapshotTurns: one snapshot of a slot at a time, and which of them are canceled."""

from __future__ import annotations

import threading

from statefulspark.errors import FencedError, UnavailableError
from statefulspark.slot.store_gate import SNAPSHOT_RUNS
from statefulspark.storage.cancellation import Cancellation


class SnapshotTurns:
    """Gives the turn to one snapshot until it is uploaded or canceled. Thread-safe.

    The coordinator takes one checkpoint at a time, and numbers them in ascending order. So if it asks for a later one, it has canceled the one that
    runs, even if the request to cancel it was lost. A request may also arrive late: after the one that cancels it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: tuple[int, Cancellation] | None = None
        self._canceled = -1
        """The last number that was canceled."""

    def begin(self, checkpoint_id: int, timeout_s: float) -> Cancellation:
        """Take the turn, until `end`; an earlier snapshot that still runs is canceled.

        Args:
            checkpoint_id: Number of the checkpoint.
            timeout_s: How long to wait for the end of an earlier snapshot, seconds.

        Returns:
            Ends the uploads of this snapshot.

        Raises:
            FencedError: This snapshot was canceled.
            UnavailableError: An earlier snapshot did not end in time.
        """
        with self._changed:
            if self._running is not None and self._running[0] < checkpoint_id:
                self._running[1].cancel()
            is_free = self._changed.wait_for(lambda: self._running is None or checkpoint_id <= self._canceled, timeout_s)
            if checkpoint_id <= self._canceled:
                raise FencedError(_text(checkpoint_id))
            if not is_free:
                raise UnavailableError(SNAPSHOT_RUNS)
            cancellation = Cancellation(_text(checkpoint_id))
            self._running = (checkpoint_id, cancellation)
            return cancellation

    def end(self) -> None:
        """Give the turn back."""
        with self._changed:
            self._running = None
            self._changed.notify_all()

    def cancel(self, checkpoint_id: int, timeout_s: float = 0.0) -> None:
        """Cancel a snapshot, whether it runs or its request is still to come, and all earlier ones.

        Args:
            checkpoint_id: Number of the checkpoint.
            timeout_s: How long to wait for its end, seconds.
        """
        with self._changed:
            self._canceled = max(self._canceled, checkpoint_id)
            self._changed.notify_all()
            running = self._running
            if running is None or running[0] > checkpoint_id:
                return
            running[1].cancel()
            self._changed.wait_for(lambda: self._running is not running, timeout_s)

    def close(self) -> None:
        """Cancel the snapshot that runs: the slot ends."""
        with self._changed:
            if self._running is not None:
                self._running[1].cancel()


def _text(checkpoint_id: int) -> str:
    return f"checkpoint {checkpoint_id} was canceled"
