"""BatchReports: what slots and tasks report of the running batch, and the changelogs that the driver stores itself.

What the driver stores is durable before it answers the last of those that report, so before the sink can commit the batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from statefulspark import failpoints
from statefulspark.coordinator.batches.broadcast_orders import BroadcastOrders
from statefulspark.coordinator.batches.changelog_groups import ChangelogGroups
from statefulspark.coordinator.batches.changelogs import BatchChangelogs
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.core import actions as do
from statefulspark.coordinator.core import events
from statefulspark.coordinator.core.life import Part
from statefulspark.coordinator.inbox import Inbox
from statefulspark.coordinator.slots.operator_states import OperatorDistribution
from statefulspark.errors import FencedError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.rpc.messages.batches import Acknowledge, PartitionRun


class BatchReports:
    """Passes reports to the core and carries out what follows; not to be called with the lock of the inbox, unless said.

    Args:
        inbox: Of the core.
        batches: The job's batches, guarded by the inbox.
        changelogs: Of batches, in storage.
        operator_states: The distribution of operator state to the present slots.
        key_groups: Returns the key groups of a slot.
    """

    def __init__(
        self,
        inbox: Inbox,
        batches: BatchLog,
        changelogs: BatchChangelogs,
        operator_states: OperatorDistribution,
        key_groups: Callable[[int], KeyGroupRange],
    ) -> None:
        self._inbox = inbox
        self._batches = batches
        self._changelogs = changelogs
        self._operator_states = operator_states
        self._key_groups = key_groups
        self._groups = ChangelogGroups(changelogs, batches, key_groups)
        self._orders = BroadcastOrders()
        self._writing = threading.Lock()
        """Held while the driver stores changelogs: of several that report together, one stores, and the others return when that is durable."""

    def begin(self) -> None:
        """A batch begins, or the job goes back. The caller holds the lock."""
        self._groups.begin()
        self._orders.begin()

    def next_query(self) -> None:
        """Another query begins. The caller holds the lock."""
        self._orders.next_query()

    def acknowledged(self, ack: Acknowledge, counted: Callable[[Acknowledge], None]) -> None:
        """A slot has processed a batch.

        Args:
            ack: Its acknowledgement.
            counted: Called with the lock once the acknowledgement counts.

        Raises:
            FencedError: The batch has ended.
            InvalidInputError: The columns of ``watermark_by`` have too many values.
            UnavailableError: Storage did not answer, or the slot has processed broadcast rows in another order than others.
        """
        with self._inbox.lock:
            if ack.broadcast is not None and self._inbox.life.is_running(ack.batch):
                try:
                    self._orders.check(ack, self._batches, self._inbox.life.parallelism)
                finally:
                    known = frozenset(self._batches.acknowledgements)
                    self._inbox.feed(events.OrdersCompared(ack.uid, known, self._orders.disputed))
            if self._inbox.life.is_running(ack.batch):
                self._batches.check_values(ack)
            actions = self._inbox.feed(events.Acknowledged((ack.uid, ack.slot), ack.batch, ack.inline is None))
            if do.Refuse(ack.batch) in actions or not self._batches.acknowledge(ack):
                raise FencedError(f"batch {ack.batch} has ended")
            counted(ack)
        self._store(ack.uid, ack.batch, actions)

    def report(self, uid: str, batch: int, run: PartitionRun) -> None:
        """A partition of ``batch`` had no rows.

        Raises:
            UnavailableError: Storage did not answer.
        """
        self._store(uid, batch, self._inbox.feed(events.PartitionEmpty(uid, batch, run)))

    def _store(self, uid: str, batch: int, actions: tuple[do.Action, ...]) -> None:
        if not actions:
            return
        with self._writing:
            actions = self._inbox.feed(events.Unproven(uid, batch))
            for action in actions:
                if isinstance(action, do.KeepProofs):
                    actions = self._keep_proofs(action)
            if do.StoreGroup(batch) in actions:
                failpoints.reach("driver.group")
                self._store_group(batch, reached="driver.grouped")

    def _keep_proofs(self, action: do.KeepProofs) -> tuple[do.Action, ...]:
        batch, uid, slots = action.batch, action.uid, action.slots
        with self._inbox.lock:
            operator_state = self._operator_states.without_rows(uid, slots)
            if action.grouped:
                if self._inbox.life.is_running(batch):
                    self._groups.add_without_rows(batch, uid, slots, operator_state)
                return self._inbox.feed(events.ProofsKept(uid, batch, slots, self._unstored()))
        written = self._changelogs.write_without_rows(
            batch, uid, [(slot, self._key_groups(slot)) for slot in sorted(slots)], operator_state
        )
        with self._inbox.lock:
            before = self._inbox.life.open_slots(uid)
            actions = self._inbox.feed(events.ProofsKept(uid, batch, slots))
            if self._inbox.life.open_slots(uid) != before:
                self._batches.without_rows += written
            return actions

    def store_group(self, batch: int) -> frozenset[Part]:
        """Store what slots have sent of the running batch, and return what is still left.

        Raises:
            UnavailableError: Storage did not answer.
        """
        with self._writing:
            return self._store_group(batch)

    def _store_group(self, batch: int, reached: str | None = None) -> frozenset[Part]:
        with self._inbox.lock:
            unstored = self._groups.unstored() if self._inbox.life.is_running(batch) else []
        stored = self._groups.store(batch, unstored)
        if reached is not None:
            failpoints.reach(reached)
        with self._inbox.lock:
            if self._inbox.life.is_running(batch):
                self._groups.stored(stored)
            left = self._unstored()
            self._inbox.feed(events.GroupStored(batch, left))
            return left

    def _unstored(self) -> frozenset[Part]:
        return frozenset((each.uid, each.slot) for each in self._groups.unstored())
