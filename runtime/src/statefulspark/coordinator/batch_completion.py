"""Completion: when a batch that Spark has committed counts as committed here.

Spark commits a batch when its sink returns, whatever the sink has read of it. The state must hold every row of a committed batch, so a batch
counts only once every key group of every keyed step has processed it:

* every slot acknowledged the batch or had no rows, in this attempt; else
* another attempt processed it completely (its sink commit landed late, so that this attempt's query skipped the batch or ended within it),
  with state ids that mean the same here: its changelogs are adopted, and none of this attempt's. Steps that its pipeline did not have begin
  after the batch, and the kept state of steps that the job no longer has includes the batch. If the sink has read a part of the batch in this
  query, only an attempt with the same steps counts; else
* the batch makes a dry run (`dry_runs`). A batch that is not complete even then fails the job, because its query leaves rows out.

The coordinator guards it with its lock; only `report` and `acknowledged` take that lock themselves, to leave it while storage is written. They
must not be called with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from statefulspark import failpoints
from statefulspark.checkpoint.formats import paths
from statefulspark.coordinator.batch_changelogs import BatchChangelogs, Complete
from statefulspark.coordinator.batch_log import BatchLog, BatchParameters
from statefulspark.coordinator.broadcast_orders import BroadcastOrders
from statefulspark.coordinator.changelog_groups import ChangelogGroups
from statefulspark.coordinator.dry_runs import DryRuns
from statefulspark.coordinator.empty_partitions import EmptyPartitions
from statefulspark.coordinator.operator_states import OperatorDistribution
from statefulspark.coordinator.slot_calls import SlotCalls
from statefulspark.coordinator.slot_state import LOST, READY
from statefulspark.coordinator.slot_table import SlotTable
from statefulspark.errors import InvalidInputError, StatefulSparkError
from statefulspark.keygroups import KeyGroupRange, key_group_range
from statefulspark.rpc.messages.batches import Acknowledge, PartitionRun
from statefulspark.state.registry import StateRegistry

_log = structlog.get_logger("statefulspark.coordinator")


class Completion:
    """Decides about the batch that runs.

    Args:
        batches: The job's batches.
        changelogs: Of batches, in storage.
        dry_runs: Batches that run again without a sink, and Spark's local checkpoint location.
        slots: The slots of the present parallelism.
        calls: Calls slots.
        states: State ids.
        operator_states: The distribution of operator state to the present slots.
        max_parallelism: Number of key groups.
        recovered: The uncommitted batch that runs again.
        inline_bytes: Largest changelog that slots send for the driver to store, in batches that no attempt has begun before; 0 for none.
        lock: The coordinator's.
        fail: Ends the job with an error.
    """

    def __init__(  # noqa: PLR0913  one argument per part of the coordinator
        self,
        *,
        batches: BatchLog,
        changelogs: BatchChangelogs,
        dry_runs: DryRuns,
        slots: Callable[[], SlotTable],
        calls: SlotCalls,
        states: StateRegistry,
        operator_states: OperatorDistribution,
        max_parallelism: int,
        recovered: BatchParameters | None,
        inline_bytes: int,
        lock: threading.RLock,
        fail: Callable[[StatefulSparkError], None],
    ) -> None:
        self.recovered = recovered
        self.queries = 0
        """Queries that have begun after the first."""
        self.inline_bytes = 0
        """Largest changelog of the running batch that slots send for the driver to store. 0 in a batch that runs again: there, what an attempt has
        processed in part must leave a trace, because its sink may have read it, and no batch of an earlier attempt with other steps counts then."""
        self._inline_bytes = inline_bytes
        self._batches = batches
        self._changelogs = changelogs
        self._dry_runs = dry_runs
        self._slots = slots
        self._calls = calls
        self._states = states
        self._operator_states = operator_states
        self._max_parallelism = max_parallelism
        self._lock = lock
        self._writing = threading.Lock()
        """Held while the driver stores changelogs, never inside the other lock."""
        self._fail = fail
        self._empty = EmptyPartitions()
        self._without_rows: dict[str, set[int]] = {}
        self._groups = ChangelogGroups(changelogs, batches, self._key_groups)
        self._orders = BroadcastOrders()
        self._computed = False
        """True if the present query has computed a partition of the running batch, so that its sink does not skip it."""

    def go_back(self, recovered: BatchParameters | None) -> None:
        """Forget the batch that runs: the job goes back, and then ``recovered`` is next."""
        self.begin()
        self.recovered = recovered

    # -- what is reported of the running batch ---------------------------------------------------------------------------

    def begin(self) -> None:
        """A batch begins whose record is durable."""
        self.inline_bytes = self._inline_bytes if self.recovered is None else 0
        self.recovered = None
        self._empty = EmptyPartitions()
        self._without_rows = {}
        self._groups.begin()
        self._orders.begin()
        self._computed = False

    def next_query(self) -> None:
        """Another query begins. It may skip the running batch, unless that makes a dry run."""
        self.queries += 1
        self._orders.next_query()
        if self._dry_runs.batch is None:
            self._computed = False

    def begun(self, uid: str, slot: int) -> None:
        """A partition of the running batch has rows for this slot."""
        self._computed = True
        self._empty.begun(uid, slot)
        self._without_rows.get(uid, set()).discard(slot)

    def check_order(self, ack: Acknowledge) -> None:
        """Check that a slot has processed the rows of a broadcast stream in the same order as the others.

        Raises:
            UnavailableError: It has not.
        """
        if self._is_running(ack.batch):
            self._orders.check(ack, self._batches, len(self._slots().all()))

    def report(self, uid: str, batch: int, run: PartitionRun) -> None:
        """A partition of ``batch`` had no rows.

        Raises:
            UnavailableError: Storage did not answer.
        """
        with self._lock:
            if self._is_running(batch):
                self._computed = True
                self._empty.report(uid, run)
        self.acknowledged(uid, batch)

    def acknowledged(self, uid: str, batch: int) -> None:
        """One more slot or partition is done. What the driver stores of the batch is durable before the sink can commit it.

        Raises:
            UnavailableError: Storage did not answer.
        """
        with self._lock:
            current = self._batches.current
            with_changelogs = current is None or current.with_changelogs
        if with_changelogs and self.inline_bytes:
            self._acknowledged_in_group(uid, batch)
        elif self._slots_without_rows(uid, batch):
            self._acknowledged_alone(uid, batch, with_changelogs=with_changelogs)

    def _acknowledged_in_group(self, uid: str, batch: int) -> None:
        """Once all slots of all steps are done, store what they have sent, and that the others had no rows."""
        with self._lock:
            if slots := self._slots_without_rows(uid, batch):
                self._groups.add_without_rows(batch, uid, slots, self._operator_states.without_rows(uid, slots))
                self._without_rows.setdefault(uid, set()).update(slots)
            if self._open_slots(uid) or self._open_steps():
                return
        # Of several that report together, one stores, and the others return when that is durable.
        with self._writing:
            with self._lock:
                unstored = self._groups.unstored() if self._is_running(batch) and not self._open_steps() else []
            if not unstored:
                return
            failpoints.reach("driver.group")
            stored = self._groups.store(batch, unstored)
            failpoints.reach("driver.grouped")
            with self._lock:
                if self._is_running(batch):
                    self._groups.stored(stored)

    def _acknowledged_alone(self, uid: str, batch: int, *, with_changelogs: bool) -> None:
        """Once all other slots of a step had no rows, make that durable."""
        with self._lock:
            if self._is_running(batch) and not with_changelogs:
                self._without_rows.setdefault(uid, set()).update(self._slots_without_rows(uid, batch))
                return
        # Of several partitions that report together, one writes, and the others return when that is durable.
        with self._writing:
            with self._lock:
                slots = self._slots_without_rows(uid, batch)
                if not slots:
                    return
                operator_state = self._operator_states.without_rows(uid, slots)
            written = self._changelogs.write_without_rows(batch, uid, [(slot, self._key_groups(slot)) for slot in slots], operator_state)
            with self._lock:
                if self._is_running(batch) and self._empty.account_for(uid, slots):
                    self._without_rows.setdefault(uid, set()).update(slots)
                    self._batches.without_rows += written

    def _slots_without_rows(self, uid: str, batch: int) -> set[int]:
        """Slots of the running batch that are known to have no rows, once they are all that have not acknowledged it."""
        with self._lock:
            slots = self._open_slots(uid) if self._is_running(batch) else set()
            return slots if slots and self._empty.account_for(uid, slots) else set()

    def _is_running(self, batch: int) -> bool:
        current = self._batches.current
        return current is not None and current.batch == batch > self._batches.committed

    def _open_slots(self, uid: str) -> set[int]:
        """Slots that have neither acknowledged the running batch nor are known to have no rows."""
        done = {slot for owner, slot in self._batches.acknowledgements if owner == uid} | self._without_rows.get(uid, set())
        return set(range(len(self._slots().all()))) - done

    def _open_steps(self) -> list[str]:
        """Uids of the steps that some slot has not processed yet."""
        return sorted(uid for uid in self._batches.delays_ms if self._open_slots(uid))

    def _key_groups(self, slot: int) -> KeyGroupRange:
        return key_group_range(slot, len(self._slots().all()), self._max_parallelism)

    # -- the end of the batch --------------------------------------------------------------------------------------------

    @property
    def running(self) -> BatchParameters | None:
        """The batch that runs, or runs again; None between batches."""
        current = self._batches.current
        if self.recovered is not None:
            return self.recovered
        return current if current is not None and current.batch > self._batches.committed else None

    def finish(self, *, before: int | None = None) -> bool:
        """Commit the running batch if Spark has committed it and it is complete.

        Args:
            before: The batch that is about to begin, which proves that Spark has committed those before it.

        Returns:
            True if no batch is running any more.

        Raises:
            UnavailableError: Storage did not answer.
            IncompatibleFormatError: A newer release processed the batch.
        """
        running = self.running
        if running is None:
            return self._began(before) and self._dry_runs.batch is None
        if not self._dry_runs.files.is_committed(running.batch) and (before is None or before <= running.batch):
            return False
        if self._dry_runs.batch is not None or (self.recovered is not None and self._dry_runs.wanted(running.batch)):
            return False
        here = self._is_running(running.batch)
        if here and not self._open_steps():
            # Left if storage failed, and the sink went on although a task had failed.
            self._groups.stored(self._groups.store(running.batch, self._groups.unstored()))
            self._batches.commit_current()
            self._operator_states.committed(running.batch)
            self.recovered = None
            return True
        # Changelogs of a batch that slots of this attempt processed in different orders do not belong together.
        return (not self._orders.disputed and self._adopted(running, here=here)) or self._completed_later(running.batch)

    def _began(self, before: int | None) -> bool:
        """False if Spark has committed a batch that never began here: the first one, of which the sink has read nothing."""
        files = self._dry_runs.files
        last = files.planned_batch() if before is None else before - 1
        if last > self._batches.committed and files.is_committed(last):
            self._completed_later(last)
            return False
        return True

    def _adopted(self, running: BatchParameters, *, here: bool) -> bool:
        """Take over the batch from an attempt that processed it completely."""
        found = self._changelogs.complete(running.batch)
        if found is None:
            return False
        if here and self._computed and found.steps != set(self._batches.delays_ms):
            # The sink has not skipped the batch: it has read a part of it in this query, of other steps than the other attempt had.
            return False
        if not self._states.take_over(found.states):
            # The other attempt completed the batch after this one had started, and gave state ids that mean something else here.
            _log.warning(
                "not adopting the batch that another attempt completed: its state ids conflict with those of this attempt",
                batch=running.batch,
            )
            return False
        if here:
            self._undo(running.batch)
        slots = [self._key_groups(slot.index) for slot in self._slots().all()]
        self._batches.adopt(running, [(done.ref, done.event_times_ms) for done in found.done], slots)
        self.recovered = None
        if self._is_of_other_distribution(running.batch, found) or not {ref.uid for ref in found.refs} <= set(self._batches.delays_ms):
            self._restore_again()
        _log.info("adopted the changelogs of another attempt", batch=running.batch)
        return True

    def _is_of_other_distribution(self, batch: int, found: Complete) -> bool:
        """True if another attempt has distributed operator state for ``batch`` in another way than this one, also to slots without rows."""
        attempts = {paths.attempt_and_batch(ref.key) for ref in found.refs}
        if attempts == {(self._changelogs.attempt, batch)}:
            self._operator_states.committed(batch)
            return False
        return bool(attempts) and self._operator_states.forget()

    def _undo(self, batch: int) -> None:
        """Let slots drop what they changed in ``batch``: the changelogs of another attempt count, perhaps of other code."""
        for slot in self._slots().all():
            if slot.state == READY:
                try:
                    self._calls.undo(slot, batch)
                except StatefulSparkError as error:
                    _log.info("slot did not roll back the batch, restarting it", slot=slot.index, error=str(error)[:200])
                    self._slots().retire(slot.index, slot.epoch)
            elif slot.state == LOST:
                self._slots().retire(slot.index, slot.epoch)

    def _restore_again(self) -> None:
        """Let slots restore the adopted batch: only so does the kept state of steps that the job no longer has get it, and operator state.

        A slot catches up with batches step by step, for the steps that it runs.
        """
        for slot in self._slots().all():
            self._slots().retire(slot.index, slot.epoch)

    def _completed_later(self, batch: int) -> bool:
        """Ask for a dry run of the batch, once; always False."""
        uids = self._open_steps()
        if self._dry_runs.complete(batch):
            if self.recovered is not None:
                _log.warning("the sink committed a batch that no driver processed completely; rerunning it without the sink", batch=batch)
            else:
                _log.warning(
                    "the sink did not read all rows of a batch; the batch is rerun without the sink, which adds latency. "
                    "Let the sink evaluate the whole DataFrame, for example with write or collect",
                    batch=batch,
                    uids=uids,
                )
        else:
            self._fail(
                InvalidInputError(
                    f"the query does not read all rows of uid {', '.join(map(repr, uids))} in batch {batch}",
                    field="spec.job",
                    remedy="Let the query use every row of a keyed step; filter rows before it or in its function",
                )
            )
        return False
