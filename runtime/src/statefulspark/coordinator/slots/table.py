"""The table of slots: which incarnation (epoch) of each slot is alive, and where it answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from statefulspark.checkpoint.restore.progress import RestoredBytes
from statefulspark.coordinator.slots.notices import SlotNotices
from statefulspark.coordinator.slots.replacement import SILENT_AFTER_S, is_back, is_lost, occupies
from statefulspark.coordinator.slots.state import LOST, READY, RESTORING, Slot
from statefulspark.errors import FencedError, InvalidInputError
from statefulspark.rpc.messages.heartbeat import SlotReport


class SlotTable:
    """Slots ``0..parallelism-1``. Epochs grow over all slots and tables of a driver, so that no two incarnations share one.

    Attributes:
        notices: Logs losses of slots.
    """

    def __init__(
        self,
        parallelism: int,
        *,
        slots_per_executor: int | None,
        executors: Callable[[], int] = lambda: 1,
        spread_s: float = 5.0,
        silent_s: float = SILENT_AFTER_S,
        notices: SlotNotices | None = None,
    ) -> None:
        """Create the table.

        Args:
            parallelism: number of slots.
            slots_per_executor: how many live slots an executor's memory is made for; None = no bound.
            executors: how many executors there are now.
            spread_s: how long a slot that starts waits for an executor that holds fewer slots.
            silent_s: a slot without a heartbeat for this long no longer counts for its executor.
            notices: logs losses of slots; None logs nothing.
        """
        self._made_s = time.monotonic()
        self._lock = threading.Lock()
        self._slots = [Slot(index) for index in range(parallelism)]
        self._bound = slots_per_executor
        self._silent_s = silent_s
        self._executors = executors
        self._spread_s = spread_s
        self._asked_s: dict[int, float] = {}
        self.notices = notices or SlotNotices(silent=True)
        self.next_epoch = 1
        self.stopping = False
        self.keep_files = False
        """True if slots that stop leave their files to slots that follow."""

    def count_executors(self) -> int:
        """Return the current number of executors; 1 if that does not matter. This asks Spark: call it without a lock."""
        return max(1, self._executors()) if self._bound is not None else 1

    def register(self, index: int, executor: str, host: str, pid: int, *, executors: int = 1) -> int | None:
        """Start a new incarnation.

        Args:
            index: Number of the slot.
            executor: Where it runs.
            host: Its machine.
            pid: Its process.
            executors: As `count_executors` returned.

        Returns:
            Its epoch, or None when the executor already holds as many slots as its memory is made for.
        """
        with self._lock:
            slot = self._slot(index)
            if self.stopping:
                return None
            if self._bound is not None and self._held_by(executor, index) >= self._allowed(index, executors):
                return None
            self._asked_s.pop(index, None)
            self._slots[index] = replace(
                slot,
                epoch=self._new_epoch(),
                state=RESTORING,
                executor=executor,
                host=host,
                pid=pid,
                location="",
                unix="",
                report=None,
                restored=None,
                incarnations=slot.incarnations + 1,
                attempt=slot.attempt + 1,
                last_heartbeat_s=time.monotonic(),
            )
            epoch = self._slots[index].epoch
        if slot.state == READY:
            why = "its process has ended" if slot.executor == executor else "its executor has ended, or its process there"
            self.notices.lost(slot, f"{why}. The executor's log says why: out of memory (OOMKilled), a crash, or a signal")
        return epoch

    def reopened(self, index: int, epoch: int) -> int:
        """Return the attempt number of a function that this incarnation opens again, because a batch was rolled back or it caught up."""
        with self._lock:
            slot = self._current(index, epoch)
            self._slots[index] = replace(slot, attempt=slot.attempt + 1)
            return slot.attempt + 1

    def _allowed(self, index: int, executors: int) -> int:
        """Slots an executor may hold: first its even share, and after a while as many as its memory is made for."""
        bound = self._bound or len(self._slots)
        waited_s = time.monotonic() - self._asked_s.setdefault(index, time.monotonic())
        if waited_s > self._spread_s:
            return bound
        return min(bound, -(-len(self._slots) // executors))

    def _held_by(self, executor: str, besides: int) -> int:
        now = time.monotonic()
        return sum(
            1
            for slot in self._slots
            if slot.executor == executor and slot.index != besides and occupies(slot, now, silent_s=self._silent_s)
        )

    def restoring(self, index: int, epoch: int, progress: RestoredBytes) -> None:
        """The incarnation has restored a part of its state."""
        with self._lock:
            self._slots[index] = replace(self._current(index, epoch), restored=progress)

    def ready(self, index: int, epoch: int, location: str, unix: str) -> None:
        """The incarnation has restored its state and serves."""
        with self._lock:
            slot = self._current(index, epoch)
            slot = replace(slot, state=READY, location=location, unix=unix, ready_epoch=epoch, last_heartbeat_s=time.monotonic())
            self._slots[index] = slot
        self.notices.serves(slot)

    def heartbeat(self, index: int, epoch: int, report: SlotReport) -> None:
        """A slot has reported."""
        with self._lock:
            slot = self._current(index, epoch)
            back = is_back(slot)
            self._slots[index] = replace(slot, report=report, state=READY if back else slot.state, last_heartbeat_s=time.monotonic())
        if back:
            self.notices.serves(slot)

    def lose(self, index: int, epoch: int) -> None:
        """An exchange could not reach this incarnation; nobody is sent to it until its next heartbeat, or until a new one registers."""
        with self._lock:
            slot = self._slot(index)
            if slot.epoch != epoch or not is_lost(slot, time.monotonic()):
                return
            self._slots[index] = replace(slot, state=LOST)
        if not self.stopping:
            self.notices.lost(slot, f"no heartbeat for {time.monotonic() - slot.last_heartbeat_s:.0f} s")

    def retire(self, index: int, epoch: int, why: str = "its state must be restored again") -> None:
        """Fence this incarnation for good, because its state may be wrong; it ends at its next heartbeat and the slot is started again. ``why`` is for the log."""
        with self._lock:
            slot = self._slot(index)
            if slot.epoch != epoch:
                return
            self._slots[index] = replace(slot, epoch=self._new_epoch(), state=LOST, location="", unix="")
        if slot.state == READY and not self.stopping:
            self.notices.lost(slot, why)

    def silence_s(self) -> float:
        """Seconds since the last heartbeat of any slot, or since the table was made; 0 if there are no slots."""
        with self._lock:
            now_s = time.monotonic()
            return now_s - max((self._made_s, *(slot.last_heartbeat_s for slot in self._slots))) if self._slots else 0.0

    def get(self, index: int) -> Slot:
        """The slot as it is now."""
        with self._lock:
            return self._slot(index)

    def check(self, index: int, epoch: int) -> None:
        """Raise FencedError unless ``epoch`` is the slot's newest incarnation."""
        with self._lock:
            self._current(index, epoch)

    def all(self) -> list[Slot]:
        """All slots in order."""
        with self._lock:
            return list(self._slots)

    def all_ready(self) -> bool:
        """True if every slot serves."""
        with self._lock:
            return all(slot.state == READY for slot in self._slots)

    def all_served(self) -> bool:
        """True if every slot has been ready once, so that each has opened its functions."""
        with self._lock:
            return all(slot.served for slot in self._slots)

    def _new_epoch(self) -> int:
        self.next_epoch += 1
        return self.next_epoch - 1

    def _slot(self, index: int) -> Slot:
        if not 0 <= index < len(self._slots):
            raise InvalidInputError(f"slot {index} does not exist, the job has {len(self._slots)}")
        return self._slots[index]

    def _current(self, index: int, epoch: int) -> Slot:
        slot = self._slot(index)
        if slot.epoch != epoch:
            raise FencedError(f"slot {index} was restarted: epoch {epoch} is stale, the current epoch is {slot.epoch}")
        return slot
