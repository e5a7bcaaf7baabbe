"""KeyedStateBackend: the keyed state of one step in one slot, batch by batch.

Changes of a batch stay pending until the next batch begins, which implies that this batch was committed; then they are written to the
store. If the same batch begins again, they are dropped. So the store never contains changes that may have to be rolled back.
While a snapshot is being taken, the store must not change, so changes of committed batches are held in front of it.

    begin_batch -> states and timers are used -> finish_batch -> apply_pending (or the next begin_batch)
         ^                    | abort_batch           | begin_batch of the same batch
         +--------------------+-----------------------+
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from statefulspark.errors import FencedError, InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from statefulspark.state.api.states import AggregatingState, ListState, MapState, ReducingState, ValueState
from statefulspark.state.batch_budget import BatchBudget
from statefulspark.state.encoding.idents import Idents
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import StateIds
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.store.committed_entries import CommittedEntries
from statefulspark.state.store.layers import Layers, SpillStore
from statefulspark.state.store.open_store import open_spill
from statefulspark.state.tables.background_cleanup import CleanupReport
from statefulspark.state.tables.declared import DeclaredStates
from statefulspark.state.tables.key_context import KeyContext
from statefulspark.state.tables.raw_keyed import RawKeyedTable
from statefulspark.state.tables.read_ahead import read_ahead
from statefulspark.state.timers import TimerTable

__all__ = ["BatchBudget", "KeyedStateBackend", "TimerTable"]

_RECOUNT_SHARE: Final = 2
"""After an exact count anything above half of the budget is spilled, so that counting is not repeated for every change."""
_RUNNING_SHARE: Final = 8
"""Part of the budget that held changes leave to the running batch. Both share one budget, so that a slow snapshot does not make the process larger."""


class KeyedStateBackend:
    """The keyed state of one step in one slot. Not thread-safe.

    Args:
        store: The slot's store; shared by all steps of the slot and not closed here.
        state_ids: Numbers the states.
        uid: The step.
        key_codec: Of its keys.
        key_groups: The slot's.
        budget: Bounds of memory.
        spill_directory: Folder for batches that outgrow memory; created and emptied here.
        open_spill: Makes an empty store in a directory, for use beside ``store``, instead of the usual one.

    Attributes:
        batch: The last batch finished here, -1 at the start; set when the store is restored.
        idents: Makes what `set_current_ident` and `prefetch` take.
        key_codec: Encodes and decodes the keys of the step.
        keys_per_check: Keys whose state may be changed before memory is compared with the budget.
        keys_per_call: Keys that a batch function gets at once; their states report what they grow by.
        timers: The step's timers.

    Raises:
        NotRestorableError: Restored timers have keys of another type.
    """

    def __init__(
        self,
        store: KeyValueStore,
        state_ids: StateIds,
        *,
        uid: str,
        key_codec: KeyCodec,
        key_groups: KeyGroupRange,
        budget: BatchBudget,
        spill_directory: Path,
        open_spill: Callable[[Path, KeyValueStore], SpillStore] = open_spill,
    ) -> None:
        self.batch = -1
        self.key_codec = key_codec
        self._uid = uid
        self._budget = budget
        spill_numbers = itertools.count()
        self._layers = Layers(
            store,
            lambda: open_spill(spill_directory / f"spill-{next(spill_numbers)}", store),
            held_bytes=budget.dirty_bytes - budget.dirty_bytes // _RUNNING_SHARE,
        )
        self._context = KeyContext(max(1, budget.dirty_bytes // 16), self._relieve, cached_entry_bytes_max=budget.cache_bytes // 2)
        self.idents = Idents(key_groups)
        self.keys_per_check, self.keys_per_call = budget.keys_per_check, budget.keys_per_call
        self._keys_until_check = self.keys_per_check
        self._running: int | None = None
        self._batch_before = -1
        self._pending: list[list[Change]] | None = None
        self._applying = False
        self._declared = DeclaredStates(self._context, self._layers, state_ids, uid=uid, key_codec=key_codec, key_groups=key_groups)
        self._tables = self._declared.tables
        self._cleanup = self._declared.cleanup
        self._written: dict[str, int] = {}
        """Entries the running batch has written, by name of the state, as far as they are encoded."""
        self._lookups_before: dict[str, int] = {}
        self.timers = TimerTable(self._declared.timer_queues(self.prefetch), key_codec)

    @property
    def can_hold(self) -> bool:
        """True if `begin_batch` may hold changes."""
        return self._layers.can_hold

    def begin_batch(self, batch: int, *, processing_time_ms: int, hold: bool = False) -> None:
        """Begin a batch.

        A batch after the last finished one commits that one; the last finished one again drops what it changed; a batch that was
        begun but not finished is rolled back first.

        Args:
            batch: Its number, 0 or more.
            processing_time_ms: Its processing time in ms since the epoch, the same for each attempt at it.
            hold: Leave the store alone, because a snapshot of it is being taken.

        Raises:
            FencedError: The batch, or a later one, has been applied to the store.
            UnavailableError: The changes of the batch before cannot be written; begin again to retry.
        """
        if batch < self.batch or (batch == self.batch and (self._pending is None or self._applying)):
            raise FencedError(f"batch {batch} of uid {self._uid!r} is already in the store, which is at batch {self.batch}")
        self.abort_batch()
        if batch == self.batch:
            self._pending = None
            self._cleanup.undone()
            self._roll_back()
            self.batch = self._batch_before
        elif hold:
            self._commit(self._layers.hold)
        else:
            self.apply_pending()
        self._context.processing_time_ms = processing_time_ms
        self._declared.batch_begins()
        self._written.clear()
        self._lookups_before = self._lookups()
        self._running = batch

    def set_current_key(self, key_group: int, key: Any, key_bytes: bytes) -> None:
        """Make a key current, whose bytes are what the key codec makes of it; InvalidInputError if the key group is not the slot's."""
        self.set_current_ident(self.idents.of(key_group, key_bytes), key)

    def set_current_ident(self, ident: bytes, key: Any) -> None:
        """Make a key current, given by its ident."""
        context = self._context
        context.ident = ident
        context.key = key
        self._keys_until_check -= 1
        if self._keys_until_check <= 0:
            self._relieve()

    def keys_passed(self, count: int) -> None:
        """Compare memory with the budget if it is time to, after ``count`` keys whose state was changed without making them current."""
        self._keys_until_check -= count
        if self._keys_until_check <= 0:
            self._relieve()

    def clear_current_key(self) -> None:
        """Let no key be current; keyed state cannot be used until the next `set_current_key`."""
        self._context.ident = self._context.key = None

    def current_key_group(self) -> int:
        """Return the key group of the current key; InvalidInputError if there is none."""
        return self._context.key_group()

    def prefetch(self, idents: Sequence[bytes]) -> int:
        """Read the point states of the keys that become current next in fewer calls; a few thousand at a time serve best.

        Returns:
            How many of them were read: as many as the cache holds, at least one. Call again with the rest when the first of those is current.
        """
        generation_bytes = self._budget.cache_bytes // 2  # two share the budget; what is read now must still be there when it is wanted
        if self._cached_bytes() > generation_bytes - generation_bytes // 4:
            self._age()
        return read_ahead(self._tables.values(), idents, self._cached_bytes, generation_bytes)

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return the state of a descriptor; the same name gives the same object.

        Raises:
            InvalidInputError: The name is used with another type or kind.
            NotRestorableError: Stored state of the name has another type or kind.
        """
        return self._declared.value_state(descriptor)

    def list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the state of a descriptor; see `value_state`."""
        return self._declared.list_state(descriptor)

    def map_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return the state of a descriptor; see `value_state`."""
        return self._declared.map_state(descriptor)

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return the state of a descriptor; see `value_state`."""
        return self._declared.reducing_state(descriptor)

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Return the state of a descriptor; see `value_state`."""
        return self._declared.aggregating_state(descriptor)

    def raw_keyed(self) -> RawKeyedTable:
        """Return the raw keyed state, made when it is first used."""
        return self._declared.raw_keyed()

    def apply_to_keyed_state(self, descriptor: StateDescriptor, visit: Callable[[Any, Any], None]) -> None:
        """Call ``visit(key, state)`` for each key of the slot that has an entry of a state, with that key current; afterwards none is.

        Keys come by key group and bytes. An entry that has expired is visited as long as it is stored, and reads as empty.

        Raises:
            InvalidInputError: As for `value_state`; or ``visit`` calls this method.
        """
        scanned = self._declared.scanned(descriptor)
        try:
            for key_group, key_bytes in scanned.keys():
                key = self.key_codec.decode(key_bytes)
                self.set_current_key(key_group, key, key_bytes)
                visit(key, scanned.state)
        finally:
            scanned.close()
            self.clear_current_key()

    def redeclare(self) -> None:
        """Let a fresh copy of the function declare its states: it gets the same entries, but its own reduce and aggregate functions."""
        self._declared.redeclare()

    def finish_batch(self, changes: Callable[[Iterable[Change]], None], *, rows: int = 0) -> None:
        """End the batch: encode what it changed and pass it on exactly as it will be applied.

        Args:
            changes: Takes the changes in several calls; a store key occurs once in all of them. If it raises, the batch still runs.
            rows: Number of rows in the batch.

        Raises:
            InvalidInputError: A value does not fit its type.
        """
        if self._running is None:
            raise InvalidInputError("no batch has begun", field="batch")
        self.clear_current_key()
        pending: list[list[Change]] = []
        if self._layers.spills:
            self._spill()
            # Not in lists: ten thousand large values would take many times the memory for which they were spilled.
            changes(self._layers.spilled_changes())
        else:
            for name, table in self._tables.items():
                if encoded := table.changes():
                    pending.append(encoded)
                    self._written[name] = len(encoded)
                    changes(encoded)
        looked_up = {name: count - self._lookups_before.get(name, 0) for name, count in self._lookups().items()}
        self._cleanup.finished(self._written, looked_up, rows, self._context.processing_time_ms)
        self._pending = pending
        self._batch_before, self.batch = self.batch, self._running
        self._running = None

    def abort_batch(self) -> None:
        """Undo everything since `begin_batch`; without a running batch there is nothing to undo."""
        if self._running is not None:
            self._running = None
            self._roll_back()

    def apply_pending(self) -> None:
        """Write the changes of the finished batch, which has been committed, and what is held of batches before it to the store.

        Afterwards the store is at ``batch``; a second call does nothing.

        Raises:
            UnavailableError: The store cannot be written; call again to retry.
        """
        if self._pending is not None:
            self._commit(self._layers.settle)
        elif self._layers.holding:
            self._layers.settle_held()
        self._cleanup.written()

    def reached(self, processing_time_ms: int | None) -> None:
        """A batch of this processing time has been committed, None for none: what has expired by then is seen by no later batch.

        Batches that this backend commits say so themselves. The job's last one may not have reached this step, or ran before a restart.
        """
        if processing_time_ms is not None:
            self._cleanup.reached(processing_time_ms)

    def committed(self, batch: int) -> CommittedEntries | None:
        """Return the entries up to ``batch``, which is committed, or a later such batch; None while they are not in the store. See `StoreGate.reading`."""
        return self._layers.committed() if batch <= (self.batch if self._pending is None else self._batch_before) else None

    @property
    def reached_ms(self) -> int | None:
        """The latest processing time of a committed batch that this backend knows of."""
        return self._cleanup.now_ms

    def sweep(self) -> bool:
        """Remove some expired entries from the store, whose only writer is the caller. Return True if there is more to do. See `BackgroundCleanup`.

        Raises:
            UnavailableError: The store cannot be written; call again.
        """
        return self._cleanup.run()

    def sweep_overdue(self) -> None:
        """Remove expired entries before a batch if cleanup has fallen behind, a bounded number; otherwise as `sweep`."""
        self._cleanup.run_overdue()

    def sweep_for_full_snapshot(self) -> None:
        """Remove expired entries of states with ``cleanup_full_snapshot``. The caller must be the store's only writer."""
        self._cleanup.run_for_full_snapshot()

    def _commit(self, take: Callable[[list[list[Change]]], None]) -> None:
        """Hand the changes of the finished batch, which has been committed, to a layer."""
        if self._pending is None:
            return
        self._applying = True  # from here on the batch cannot be dropped, also when writing fails half-way: it can only be written again
        self._cleanup.committed()
        # Before they are written, which takes native memory: what the cache has no room for goes first. Nothing is read until it is written.
        for table in self._tables.values():
            table.commit()
        if self._cached_bytes() > self._budget.cache_bytes:
            # A batch may change more than the cache may hold, and ageing alone would keep all of it as the older half.
            self._age()
            self._age()
        self._relieve_cache()
        take(self._pending)
        self._pending = None
        self._applying = False

    def entry_counts(self) -> dict[str, int]:
        """Return per state how many entries are held in memory, changed or cached."""
        return {name: table.entry_count() for name, table in self._tables.items()}

    def cache_lookups(self) -> dict[str, tuple[int, int]]:
        """Return cache hits and misses per state. Thread-safe."""
        return {name: (table.hits, table.misses) for name, table in list(self._tables.items()) if table.hits or table.misses}

    def cleanup_report(self) -> CleanupReport:
        """Return what the cleanup of expired entries has done. Thread-safe."""
        return self._cleanup.report()

    def _lookups(self) -> dict[str, int]:
        return {name: table.hits + table.misses for name, table in self._tables.items()}

    def _roll_back(self) -> None:
        self.clear_current_key()
        spilled = self._layers.spills > 0
        for table in self._tables.values():
            table.rollback(spilled=spilled)
        self._layers.drop_spill()

    def _relieve(self) -> None:
        """Spill or evict when the budget is used up."""
        self._keys_until_check = self.keys_per_check
        self._context.growth_bytes = 0
        self._relieve_cache()
        limit = self._budget.dirty_bytes - self._layers.held_memory_bytes
        if self._changed_bytes() > limit:
            for table in self._tables.values():
                table.recount()
            if self._changed_bytes() > limit // _RECOUNT_SHARE:
                self._spill()

    def _relieve_cache(self) -> None:
        # Two generations share the budget.
        if self._cached_bytes() * 2 > self._budget.cache_bytes:
            self._age()

    def _cached_bytes(self) -> int:
        return sum(table.cached_bytes() for table in self._tables.values())

    def _age(self) -> None:
        for table in self._tables.values():
            table.age()

    def _changed_bytes(self) -> int:
        return sum(table.changed_bytes() for table in self._tables.values())

    def _spill(self) -> None:
        for name, table in self._tables.items():
            changes = table.changes()
            if changes:
                self._layers.spill(changes)
                self._written[name] = self._written.get(name, 0) + len(changes)
                table.spilled()
