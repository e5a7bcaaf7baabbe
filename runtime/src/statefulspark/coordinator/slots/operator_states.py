"""OperatorDistribution: assigns the operator state of steps to the slots of one slot table. Broadcast state needs no distribution.

A distribution begins when a driver starts, when the job is rescaled, and when a batch of another attempt is adopted. Its *first batch* is the first
one that is committed after that. The changelogs of a first batch contain the whole operator state of every slot, so no earlier distribution is ever
repeated: until then the next driver makes its own from the same source, and from then on each slot finds its state in storage.

The coordinator guards it with its batch lock. To read the state it leaves the lock: it takes a `Source`, reads it, and distributes what it has
read if the source is still the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.restore.operator_state import read_stored
from statefulspark.coordinator.batches.changelogs import WithoutRows
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.slots.operator_parts import IN_STORAGE, Part, SlotParts
from statefulspark.errors import UnavailableError
from statefulspark.state.operator.entries import OPERATOR_UNION, OperatorLists, is_broadcast, is_operator_state, list_entries
from statefulspark.state.operator.redistribution import redistribute
from statefulspark.state.registry import StateRegistry
from statefulspark.storage.base import ObjectStore


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of a distribution. Two that are equal lead to the same parts."""

    base: StoredCheckpoint | None
    changelogs: tuple[ChangelogRef, ...]
    uids: frozenset[str]
    parallelism: int

    def read(self, store: ObjectStore) -> dict[tuple[str, int], Part]:
        """Read all operator state and assign it to slots. This takes long with much state, so call it without the batch lock.

        Args:
            store: Opened at the job's folder.

        Raises:
            CorruptDataError: An object is damaged or missing.
            UnavailableError: Storage did not answer.
        """
        parts: dict[tuple[str, int], Part] = {}
        stored = read_stored(self.base, store, self.changelogs, self.uids)
        for uid in self.uids:
            infos = tuple(stored.states(uid))
            unions = {info.state_id for info in infos if info.kind == OPERATOR_UNION}
            lists = redistribute(stored.lists(uid), old_slots=stored.parallelism(uid), new_slots=self.parallelism, unions=unions)
            for slot, mine in enumerate(lists):
                parts[uid, slot] = Part(restored=stored.has_state_of(uid), assigned=True, lists=mine, states=infos)
        return parts


class OperatorDistribution:
    """The distribution of the present slots.

    Args:
        durable: The job's folder in storage.
        batches: The job's batches.
        states: State ids.
        checkpointed: Steps whose function keeps operator state.
    """

    def __init__(self, *, durable: DurableJob, batches: BatchLog, states: StateRegistry, checkpointed: Collection[str]) -> None:
        self._durable = durable
        self._batches = batches
        self._states = states
        self._checkpointed = frozenset(checkpointed)
        self._uids: frozenset[str] = frozenset()
        self._first: int | None = None
        self._parts: dict[tuple[str, int], Part] | None = None
        """By step and slot; None before the first registration. They stay until the first batch is committed."""
        self._parallelism = 0
        self._processing_time_ms = 0
        self.forget()

    def forget(self) -> bool:
        """Let the next registration make a new distribution; no slot of this one may go on.

        Returns:
            True if there is operator state to distribute.
        """
        restored = {info.uid for info in self._states.states() if is_operator_state(info) and not is_broadcast(info)}
        self._uids = frozenset((restored | self._checkpointed) & set(self._batches.delays_ms))
        self._first = None
        self._parts = None
        return bool(self._uids)

    @property
    def is_open(self) -> bool:
        """True until the first batch is committed, if there is operator state. A recovered batch may still be adopted from another attempt."""
        return bool(self._uids) and self._first is None

    def source(self, parallelism: int) -> Source | None:
        """Return the source to read and pass to `distribute` before a slot can register; None if that is done or there is nothing to read."""
        if self._parts is None and not self._uids:
            self._parts = {}
        if self._parts is not None:
            return None
        return Source(self._durable.base, tuple(self._batches.changelogs), self._uids, parallelism)

    def distribute(self, source: Source, parts: Mapping[tuple[str, int], Part]) -> None:
        """Assign to the slots what was read from a source, if `source` still returns that one: slots and state may have changed meanwhile."""
        self._parts = dict(parts)
        self._parallelism = source.parallelism
        self._processing_time_ms = self._batches.processing_time_ms

    def parts_of(self, slot: int) -> SlotParts | None:
        """Return the parts that a registering slot restores; None if there is no operator state."""
        if not self._uids or self._parts is None:
            return None
        if self._first is not None:
            parts = dict.fromkeys(self._uids, IN_STORAGE)
        else:
            parts = {uid: part for (uid, index), part in self._parts.items() if index == slot}
        return SlotParts(slot, self._first, self._processing_time_ms, parts)

    def report(self, slot: int, reports: Mapping[str, OperatorLists]) -> None:
        """A slot has made its own of its parts. The first report replaces a part; if the slot restarts, it gets the report."""
        if self._first is not None or self._parts is None:
            return
        infos = self._states.states()
        for uid, lists in reports.items():
            part = self._parts.get((uid, slot))
            if part is None or not part.assigned:
                continue
            states = tuple(info for info in infos if info.state_id in lists)
            self._parts[uid, slot] = replace(part, restored=True, assigned=False, lists=lists, states=states)

    def unreported(self, uid: str) -> int | None:
        """Return a slot whose state of the step is not known yet, although the first batch needs it; None if there is none."""
        if uid not in self._uids or self._first is not None:
            return None
        if self._parts is None:
            return 0
        return next((slot for (owner, slot), part in sorted(self._parts.items()) if owner == uid and part.assigned), None)

    def scope(self, uid: str) -> Literal["all", "changed"]:
        """Return the scope of a step's changelogs in the running batch."""
        return "all" if self.is_open and uid in self._uids else "changed"

    def without_rows(self, uid: str, slots: Iterable[int]) -> WithoutRows | None:
        """Return the entries that the driver writes for slots without rows in the first batch; None if there are none.

        Raises:
            UnavailableError: A slot has not reported.
        """
        if self.scope(uid) != "all":
            return None
        if (missing := self.unreported(uid)) is not None or self._parts is None:
            raise UnavailableError(f"slot {missing} of uid {uid!r} has not reported its operator state")
        entries = [entry for slot in sorted(slots) for entry in list_entries(slot, self._parts[uid, slot].lists)]
        return WithoutRows(entries, self._parallelism, [info for info in self._states.states() if info.uid == uid])

    def committed(self, batch: int) -> None:
        """A batch that the slots of this distribution have processed is committed."""
        if self._first is None and self._parts is not None:
            self._first = batch
            self._parts = {}
