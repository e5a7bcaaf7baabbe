"""JobSlots: the slots of the present parallelism, which a rescale stops and replaces as a whole."""

from __future__ import annotations

from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.core.events import Rescaled
from statefulspark.coordinator.inbox import Inbox
from statefulspark.coordinator.slots.calls import SlotCalls
from statefulspark.coordinator.slots.crashes import CrashWatch
from statefulspark.coordinator.slots.notices import SlotRestored
from statefulspark.coordinator.slots.operator_states import OperatorDistribution
from statefulspark.coordinator.slots.state import READY, Slot
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.errors import UnavailableError
from statefulspark.rpc.messages.slot_control import CancelSnapshot, Snapshot


class JobSlots:
    """Holds the slot table, and calls all slots or replaces them.

    Args:
        table: The slots of the first parallelism.
        calls: Calls slots.
        crashes: Counts the slots that die at the same rows.
        batches: The job's batches, guarded by the inbox.
        operator_states: The distribution of operator state to the slots, guarded by the inbox.
        inbox: Of the core.
    """

    def __init__(
        self,
        table: SlotTable,
        *,
        calls: SlotCalls,
        crashes: CrashWatch,
        batches: BatchLog,
        operator_states: OperatorDistribution,
        inbox: Inbox,
    ) -> None:
        self._table = table
        self._calls = calls
        self._crashes = crashes
        self._batches = batches
        self._operator_states = operator_states
        self._inbox = inbox
        self._restored: SlotRestored = lambda *_: None

    def on_restored(self, told: SlotRestored) -> None:
        """Call ``told`` for each slot that was lost, once it serves again, in this table and those that follow."""
        self._restored = told
        self._table.notices.on_restored(told)

    def table(self) -> SlotTable:
        """Return the present table; a caller that keeps it misses a rescale."""
        return self._table

    def all(self) -> list[Slot]:
        """Return all slots of the present parallelism in order."""
        return self._table.all()

    def stop(self, *, keep_files: bool = False) -> None:
        """Tell every slot to end; those that cannot be reached do so at their next heartbeat.

        Args:
            keep_files: True if other slots follow, which may link the files of these.
        """
        self._table.keep_files = keep_files
        self._table.stopping = True
        for slot in self._table.all():
            if slot.state == READY:
                self._calls.stop(slot, keep_files=keep_files)

    def replace(self, table: SlotTable) -> None:
        """Continue with another parallelism; the caller has paused batches and stopped the old slots."""
        with self._inbox.between_steps():
            table.next_epoch = self._table.next_epoch
            self._crashes.replaced(rescaled=len(table.all()) != len(self._table.all()))
            table.notices.on_restored(self._restored)
            self._table = table
            self._batches.reset_slots()
            self._operator_states.forget()
            self._inbox.feed(Rescaled(len(table.all())))

    def settle(self, batches: BatchLog) -> None:
        """Tell slots in the background that the batch before the running one is committed; the caller holds the lock of the inbox."""
        self._calls.settle(self.all(), batches)

    def cancel_snapshot(self, slot: Slot, request: CancelSnapshot) -> None:
        """Let the slot end a snapshot that was canceled.

        Raises:
            FencedError: Another incarnation of the slot answers.
            UnavailableError: The slot does not answer.
        """
        self._calls.cancel_snapshot(slot, request)

    def snapshot(self, slot: Slot, request: Snapshot) -> None:
        """Ask a slot for a snapshot; one that does not answer gets no rows until its next heartbeat.

        Raises:
            UnavailableError: The slot does not answer.
        """
        try:
            self._calls.snapshot(slot, request)
        except UnavailableError:
            self._table.lose(slot.index, slot.epoch)
            raise
