"""QueryLifecycle: the query of a job from its start to its end, and how the driver pauses and drains it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from statefulspark.coordinator.batches.completion import Completion
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.core.actions import ForgetCommit, ForgetPlans
from statefulspark.coordinator.core.events import QueryStarts
from statefulspark.coordinator.durable.spark_location import SparkLocation
from statefulspark.coordinator.inbox import Inbox
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.errors import UnavailableError


class QueryLifecycle:
    """Says which batches may begin. The driver calls it before it starts or stops a query, and to pause or drain one.

    Attributes:
        paused: True if no further batch may begin.
        stopping: True if the query is about to be stopped.
        draining: True if every event-time timer is due.
        available_until_ms: When the running query started, if it ends by itself (``trigger(availableNow=True)``), else None: it fires no
            processing-time timers of later.
    """

    def __init__(
        self,
        *,
        batches: BatchLog,
        slots: Callable[[], SlotTable],
        location: SparkLocation,
        completion: Completion,
        inbox: Inbox,
        now_ms: Callable[[], int],
        interrupt: Callable[[], None] = lambda: None,
    ) -> None:
        """Start with no query.

        Args:
            batches: The job's batches, guarded by the inbox.
            slots: Returns the present table, which a rescale replaces.
            location: Spark's local checkpoint location.
            completion: Decides when a batch is committed.
            inbox: Of the core.
            now_ms: The clock that processing times come from.
            interrupt: Raises ConflictError if the running batch cannot end, because the job must go back first.
        """
        self.paused = False
        self.stopping = False
        self.draining = False
        self.available_until_ms: int | None = None
        self._batches = batches
        self._slots = slots
        self._location = location
        self._completion = completion
        self._inbox = inbox
        self._now_ms = now_ms
        self._interrupt = interrupt

    @property
    def dry_run(self) -> int | None:
        """The batch that runs again without a sink, None if there is none."""
        return self._inbox.life.dry.batch

    @property
    def committed_by_spark(self) -> int:
        """The last batch that Spark counts as committed; -1 for none."""
        return self._location.files.committed_batch()

    def before_start(self, *, available_now: bool = False) -> bool:
        """Forget plans of batches that never began, because a query is about to start.

        Args:
            available_now: True if it ends by itself (``trigger(availableNow=True)``).

        Returns:
            True if the query must be one without a sink, for a dry run.
        """
        with self._inbox.between_steps():
            self.stopping = False
            self.available_until_ms = self._now_ms() if available_now else None
            for action in self._inbox.feed(QueryStarts(self._location.facts(self._inbox.life))):
                if isinstance(action, ForgetCommit):
                    self._location.files.forget_commit(action.batch)
                elif isinstance(action, ForgetPlans):
                    self._location.files.forget_planned(after=action.after)
            self._completion.reports.next_query()
            self._location.next_query()
            return self._inbox.life.dry.running

    def before_stop(self) -> None:
        """Cancel a batch that waits to begin, because the query is about to be stopped and Spark does not interrupt that wait."""
        self.stopping = True

    def idle(self) -> bool:
        """Return True if every slot has reported its timers, none of them is due, and the last batch that began is committed."""
        now_ms = self._now_ms()
        if not self._slots().all_ready() or not self._completion.finish():
            return False
        with self._inbox.lock:
            return not any(self._batches.tick_due(uid, now_ms, drain=self.draining) for uid in self._batches.delays_ms)

    def drain(self, *, on: bool = True) -> None:
        """Make every event-time timer due, or with ``on=False`` no longer."""
        self.draining = on

    def pause(self, timeout_s: float, check: Callable[[], None] = lambda: None) -> None:
        """Let no further batch begin; returns when the running one is committed.

        Args:
            timeout_s: For how long the batch may take.
            check: Raises an error if its end is not worth waiting for; then batches continue.

        Raises:
            UnavailableError: it did not end in time; batches continue.
            ConflictError: it cannot end, because the job must go back to its last checkpoint; batches continue after that.
        """
        deadline = time.monotonic() + timeout_s
        with self._inbox.lock:
            self.paused = True
        while time.monotonic() < deadline:
            try:
                check()
                self._interrupt()
            except Exception:
                self.resume()
                raise
            with suppress(UnavailableError):
                if self._completion.finish():
                    return
            time.sleep(0.02)
        self.resume()
        raise UnavailableError(f"the running batch did not end within {timeout_s:.0f} s")

    def resume(self) -> None:
        """Let batches begin again."""
        with self._inbox.lock:
            self.paused = False
