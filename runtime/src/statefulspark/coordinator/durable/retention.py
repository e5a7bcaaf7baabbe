"""JobRetention: deletes what neither a retained checkpoint nor the attempt's lineage needs, after each checkpoint and when one becomes too old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from statefulspark.checkpoint.catalog import OpenStore
from statefulspark.checkpoint.lineage.lineage import Lineage
from statefulspark.checkpoint.write.retention import Retention
from statefulspark.coordinator.durable.claimed_savepoint import ClaimedSavepoint
from statefulspark.coordinator.durable.fence import Fence
from statefulspark.coordinator.snapshots.checkpoint_list import CheckpointList
from statefulspark.errors import FencedError
from statefulspark.storage.base import ObjectStore


class SteadyClock:
    """The wall clock, but never faster than time passes.

    If the wall clock is set forward, nothing becomes older at once. If it is set back, everything becomes younger, and is kept for longer.
    """

    def __init__(self) -> None:
        self._started_s = time.time() - time.monotonic()

    def now_s(self) -> float:
        """Seconds since the epoch."""
        return min(time.time(), self._started_s + time.monotonic())


class JobRetention:
    """Runs retention, once at a time.

    Args:
        store: Opened at the job folder.
        lineage: Of the running attempt.
        fence: The driver's.
        completed: Gets to know what is left.
        retained: Number of complete checkpoints to keep, at least 1.
        max_age_s: Seconds since its completion after which a checkpoint is not kept, unless it is the newest one. None for no limit.
        open_store: Opens the store of a savepoint that the job has claimed.
    """

    def __init__(
        self,
        store: ObjectStore,
        lineage: Lineage,
        fence: Fence,
        completed: CheckpointList,
        *,
        retained: int,
        max_age_s: float | None,
        open_store: OpenStore,
    ) -> None:
        self._retention = Retention(store, retained=retained, max_age_s=max_age_s)
        self._lineage = lineage
        self._fence = fence
        self._completed = completed
        self._claimed = ClaimedSavepoint(lineage, store.url, open_store, fence.check)
        self._max_age_s = max_age_s
        self._clock = SteadyClock()
        self._lock = threading.Lock()
        self._has_run = False

    def is_due(self) -> bool:
        """True if a checkpoint may exceed the maximum age; those of earlier drivers are not known before the first run."""
        if self._max_age_s is None:
            return False
        oldest_ms = (self._clock.now_s() - self._max_age_s) * 1000
        checkpoints = [info for info in self._completed.all() if info.kind == "checkpoint"]
        return not self._has_run or any(info.completed_ms < oldest_ms for info in checkpoints[:-1])

    def run(self, base: Callable[[], int | None], *, in_flight: int | None, packs_in_use: Callable[[], Collection[str]]) -> None:
        """Delete what can go; does nothing while another thread does, and if a newer attempt runs the job.

        Args:
            base: Returns the checkpoint that slots restore, which stays; asked once nothing can replace it meanwhile.
            in_flight: Number of the checkpoint that is being taken meanwhile.
            packs_in_use: Asked for the keys of the packs of Spark's state that are needed beside those that checkpoints name.

        Raises:
            UnavailableError: Storage did not answer.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._fence.check()
            pin = base()
            self._retention.run(
                self._lineage,
                now_s=self._clock.now_s(),
                in_flight=() if in_flight is None else (in_flight,),
                pins=() if pin is None else (pin,),
                packs_in_use=packs_in_use,
                check_fence=self._fence.check,
            )
            self._completed.retained(self._retention.retained)
            self._has_run = True
            self._claimed.replaced_by(pin)
        except FencedError:
            return  # what is here belongs to the newer attempt; batches and the idle watch report it
        finally:
            self._lock.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delete nothing within the block: it chooses another checkpoint to restore."""
        with self._lock:
            yield
