"""OperatorStateBackend: the operator state of one step in one slot, batch by batch.

It stands beside the KeyedStateBackend and takes the same calls. All lists are on the heap. A list is a tuple of encoded elements that is never
changed in place, so a commit replaces references and a snapshot keeps the old ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from statefulspark.errors import InvalidInputError
from statefulspark.sizes import short_size
from statefulspark.state.api.descriptors import ListStateDescriptor
from statefulspark.state.api.operator_state import OperatorStateStore
from statefulspark.state.api.states import ListState
from statefulspark.state.encoding.layout import StateIds, StateInfo
from statefulspark.state.encoding.values import PLAIN, ValueCodec, unreadable
from statefulspark.state.evolution.list_reader import reader_of
from statefulspark.state.evolution.schema_reader import SchemaReader
from statefulspark.state.operator.broadcast import BroadcastStates
from statefulspark.state.operator.entries import (
    OPERATOR_LIST,
    OPERATOR_UNION,
    RAW_OPERATOR,
    RAW_OPERATOR_NAME,
    BroadcastChanges,
    BroadcastEntries,
    OperatorEntry,
    OperatorLists,
    is_broadcast,
    list_entries,
)
from statefulspark.state.tables.combining import none_added
from statefulspark.state.types.base import TypeInformation

OPERATOR_STATE_BYTES_MAX: Final = 64 << 20
"""Operator state of a step in all slots together."""
_PLAIN: Final = bytes([PLAIN])


@dataclass(frozen=True, slots=True)
class StepOperatorState:
    """What a slot starts with.

    Attributes:
        lists: Elements by state id.
        states: Descriptions of the lists and of broadcast state.
        restored: True if storage has state of the step, or an earlier copy of the function took a snapshot.
        batch: The last batch that it includes, -1 before the first.
        broadcast: Entries of broadcast state by state id.
    """

    lists: OperatorLists = field(default_factory=dict)
    states: tuple[StateInfo, ...] = ()
    restored: bool = False
    batch: int = -1
    broadcast: BroadcastEntries = field(default_factory=dict)


class OperatorStateBackend(OperatorStateStore):
    """The operator state of one step in one slot. Not thread-safe.

    Args:
        state_ids: Numbers the states.
        uid: The step.
        slot: Number of the slot.
        parallelism: Number of slots.
        start: What is restored. States that the function does not declare are kept as bytes.

    Attributes:
        batch: The last batch finished here, or the one that was restored.
        restored: True if a copy of the function that is opened now has something to restore.
        broadcast: The broadcast state of the step.
    """

    def __init__(self, state_ids: StateIds, *, uid: str, slot: int, parallelism: int, start: StepOperatorState) -> None:
        self.batch = start.batch
        self.restored = start.restored
        self._state_ids = state_ids
        self._uid = uid
        self._slot = slot
        self._parallelism = parallelism
        self._infos = {info.state_id: info for info in start.states if not is_broadcast(info)}
        self.broadcast = BroadcastStates(
            state_ids, uid=uid, slot=slot, entries=start.broadcast, states=[info for info in start.states if is_broadcast(info)]
        )
        self._committed: dict[int, tuple[bytes, ...]] = dict(start.lists)
        self._finished: dict[int, tuple[bytes, ...]] | None = None
        """As of the finished batch, until it is committed."""
        self._encoded: dict[int, tuple[bytes, ...]] | None = None
        """As of the running batch, from `changes` to `finish_batch`."""
        self._touched: dict[int, list[bytes]] = {}
        """Lists that were changed since the last batch was finished."""
        self._running: int | None = None
        self._batch_before = -1
        self._handles: dict[str, OperatorListState] = {}
        self._declaring = True

    # -- states ----------------------------------------------------------------------------------------------------------

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return self._state(state_descriptor, OPERATOR_LIST)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return self._state(state_descriptor, OPERATOR_UNION)

    def get_registered_state_names(self) -> set[str]:
        return {info.name for info in self._infos.values() if info.kind != RAW_OPERATOR}

    def raw_partitions(self) -> list[bytes]:
        """Return the partitions of raw operator state that this slot has."""
        states = [info.state_id for info in self._infos.values() if info.kind == RAW_OPERATOR]
        stored = [element for state_id in states for element in self.elements(state_id)]
        for element in stored:
            if element[:1] != _PLAIN:
                raise unreadable(element, f"raw operator state of uid {self._uid!r}")
        return [element[len(_PLAIN) :] for element in stored]

    def replace_raw_partitions(self, partitions: Iterable[bytes]) -> None:
        """Replace the raw operator state of this slot."""
        info = self._state_ids.register(self._uid, RAW_OPERATOR_NAME, RAW_OPERATOR, {"key_type": [], "type": {}, "ttl_ms": None})
        self._infos[info.state_id] = info
        self.replace(info.state_id, [_PLAIN + partition for partition in partitions])

    def redeclare(self) -> None:
        """Let a fresh copy of the function declare its states; it gets the same elements."""
        self._handles = {}
        self._declaring = True

    def initialized(self) -> None:
        """Declare nothing from now on, because ``initialize_state`` has returned."""
        self._declaring = False

    def _state(self, descriptor: ListStateDescriptor, kind: str) -> ListState[Any]:
        field_ = f"state {descriptor.name!r}"
        if not isinstance(descriptor, ListStateDescriptor):
            raise InvalidInputError("operator state is a list", field=field_, remedy="Pass a ListStateDescriptor")
        if descriptor.ttl is not None:
            remedy = "Remove enable_time_to_live from its descriptor"
            raise InvalidInputError("operator state has no time to live", field=field_, remedy=remedy)
        known = self._handles.get(descriptor.name)
        if known is None:
            if not self._declaring:
                raise InvalidInputError("it is declared too late", field=field_, remedy="Declare operator state in initialize_state")
            known = self._handles[descriptor.name] = self._declared(descriptor, kind)
        info = self._infos[known.state_id]
        if (info.kind, info.type) != (kind, descriptor.type_info.to_json()):
            raise InvalidInputError(
                f"it was declared as {info.kind} of {info.type['element']['type']} before",
                field=field_,
                remedy="Give each state its own name",
            )
        return known

    def _declared(self, descriptor: ListStateDescriptor, kind: str) -> OperatorListState:
        description: dict[str, Any] = {"key_type": [], "type": descriptor.type_info.to_json(), "ttl_ms": None}
        info = self._state_ids.register(self._uid, descriptor.name, kind, description)
        self._infos[info.state_id] = info
        where = f"state {descriptor.name!r} of uid {self._uid!r}"
        return OperatorListState(self, info.state_id, element=descriptor.type_info.element, where=where, reader=reader_of(info))

    def states(self) -> list[StateInfo]:
        """Return the descriptions of all lists and of broadcast state, by id."""
        return sorted([*self._infos.values(), *self.broadcast.states()], key=lambda info: info.state_id)

    # -- elements, for handles -------------------------------------------------------------------------------------------

    def elements(self, state_id: int) -> Iterable[bytes]:
        """Return the elements of a list as they are now."""
        touched = self._touched.get(state_id)
        return touched if touched is not None else self._latest().get(state_id, ())

    def add(self, state_id: int, elements: Iterable[bytes]) -> None:
        """Append elements to a list."""
        touched = self._touched.get(state_id)
        if touched is None:
            touched = self._touched[state_id] = list(self._latest().get(state_id, ()))
        touched.extend(elements)

    def replace(self, state_id: int, elements: Iterable[bytes]) -> None:
        """Replace all elements of a list."""
        self._touched[state_id] = list(elements)

    def _latest(self) -> dict[int, tuple[bytes, ...]]:
        return self._finished if self._finished is not None else self._committed

    # -- batches ---------------------------------------------------------------------------------------------------------

    def begin_batch(self, batch: int) -> None:
        """Begin a batch; as `KeyedStateBackend.begin_batch`, which is called first and refuses batches that cannot begin."""
        self.abort_batch()
        if batch == self.batch:
            self.broadcast.undo_finished()
            self._finished = None
            self._touched = {}
            self.batch = self._batch_before
        else:
            self.apply_pending()
        self.broadcast.begin_batch()
        self._running = batch

    def changes(self, *, whole: bool) -> list[OperatorEntry]:
        """Return what the running batch changed.

        Args:
            whole: Return all lists. Of broadcast state it is always what changed: no slot writes it for another one.

        Raises:
            InvalidInputError: The lists are too large. The batch is still running and can be aborted.
        """
        latest = self._latest()
        changed = {state_id: tuple(each) for state_id, each in self._touched.items() if latest.get(state_id) != tuple(each)}
        self._encoded = self._checked({**latest, **changed}) if changed else latest
        return [*list_entries(self._slot, self._encoded if whole else changed), *self.broadcast.changes()]

    def finish_batch(self) -> None:
        """End the batch after `changes`."""
        if self._running is None or self._encoded is None:
            raise InvalidInputError("no batch has begun", field="batch")
        self._finished, self._encoded = self._encoded, None
        self._touched = {}
        self.broadcast.finish_batch()
        self._batch_before, self.batch = self.batch, self._running
        self._running = None

    def abort_batch(self) -> None:
        """Undo everything since `begin_batch`, and what the function did when it was opened; without a running batch there is nothing to undo."""
        if self._running is not None:
            self._running = None
            self._encoded = None
            self._touched = {}
            self.broadcast.abort_batch()

    def apply_pending(self) -> None:
        """Commit the finished batch. A second call does nothing."""
        self.broadcast.apply_pending()
        if self._finished is not None:
            self._committed, self._finished = self._finished, None

    def report(self) -> list[OperatorEntry]:
        """Commit what the function made of its part after a redistribution, and return it. Broadcast state is not distributed, so it is no part of it.

        A union list that the function does not declare is left to slot 0, because otherwise it would multiply with each redistribution.

        Raises:
            InvalidInputError: The lists are too large.
        """
        declared = {handle.state_id for handle in self._handles.values()}
        lists = {**self._committed, **{state_id: tuple(each) for state_id, each in self._touched.items()}}
        for state_id in set(lists) - declared:
            if self._slot and self._infos[state_id].kind == OPERATOR_UNION:
                lists[state_id] = ()
        self._committed = self._checked(lists)
        self._touched = {}
        self.restored = True
        return list_entries(self._slot, self._committed)

    def caught_up(self, batch: int, lists: OperatorLists, states: Iterable[StateInfo], broadcast: BroadcastChanges) -> StepOperatorState:
        """Return what a backend starts with that stands at a later batch.

        Args:
            batch: The batch.
            lists: Lists that committed batches have changed since.
            states: Descriptions of these lists and of broadcast state.
            broadcast: What committed batches have changed in broadcast state since.
        """
        infos = {info.state_id: info for info in (*self.states(), *states)}
        entries = self.broadcast.caught_up(broadcast)
        return StepOperatorState({**self._committed, **lists}, tuple(infos.values()), restored=True, batch=batch, broadcast=entries)

    def committed(self) -> list[OperatorEntry]:
        """Return all lists and broadcast state as of the last committed batch."""
        return [*list_entries(self._slot, self._committed), *self.broadcast.committed()]

    def _checked(self, lists: dict[int, tuple[bytes, ...]]) -> dict[int, tuple[bytes, ...]]:
        """Return the lists if those that the function declares or has written are small enough.

        Split lists that a redistribution made too large may stay, but not grow. Lists that the function does not declare may stay too: slot 0 has
        all of such a union list, which may be as large as the lists of all slots together.
        """
        raw = {info.state_id for info in self._infos.values() if info.kind == RAW_OPERATOR}
        own = {handle.state_id for handle in self._handles.values()} | self._touched.keys() | raw
        written = {state_id: each for state_id, each in lists.items() if state_id in own}
        before = {state_id: each for state_id, each in self._latest().items() if state_id in own}
        limit = OPERATOR_STATE_BYTES_MAX // self._parallelism
        union, split = self._sizes(written)
        if split + union > limit and (union > limit or split > self._sizes(before)[1]):
            largest = max(written, key=lambda state_id: sum(map(len, written[state_id])))
            slots = "the only slot" if self._parallelism == 1 else f"each of the {self._parallelism} slots"
            raise InvalidInputError(
                f"the operator state of slot {self._slot} has {short_size(split + union, up=True)}, and {slots} may hold {short_size(limit)}",
                field=f"state {self._infos[largest].name!r} of uid {self._uid!r}",
                remedy="In snapshot_state, keep only the elements of this slot, or use keyed state",
            )
        return lists

    def _sizes(self, lists: OperatorLists) -> tuple[int, int]:
        """Return the bytes of union lists and of the others."""
        every = sum(sum(map(len, each)) for each in lists.values())
        union = sum(sum(map(len, each)) for state_id, each in lists.items() if self._infos[state_id].kind == OPERATOR_UNION)
        return union, every - union


class OperatorListState(ListState[Any]):
    """A list of one slot.

    Args:
        backend: Holds the elements.
        state_id: Of the list.
        element: Type of the elements.
        where: Names the state in errors.
        reader: Reads its elements if the state has evolved.
    """

    __slots__ = ("_backend", "_codec", "_element", "_prefix", "_reader", "_where", "state_id")

    def __init__(
        self, backend: OperatorStateBackend, state_id: int, *, element: TypeInformation, where: str, reader: SchemaReader | None
    ) -> None:
        self.state_id = state_id
        self._reader = reader
        self._prefix = _PLAIN if reader is None else reader.prefix + _PLAIN
        self._backend = backend
        self._element = element
        self._codec = ValueCodec(element, where)
        self._where = where

    def get(self) -> Iterator[Any]:
        return iter([self._codec.decode(element) for element in self._current()])

    def add(self, value: Any) -> None:
        self._backend.add(self.state_id, (self._encoded(value),))

    def add_all(self, values: Iterable[Any]) -> None:
        self._backend.add(self.state_id, [self._encoded(value) for value in values])

    def update(self, values: Iterable[Any]) -> None:
        self._backend.replace(self.state_id, [self._encoded(value) for value in values])

    def clear(self) -> None:
        self._backend.replace(self.state_id, ())

    def _current(self) -> Iterable[bytes]:
        elements = self._backend.elements(self.state_id)
        if self._reader is None:
            return elements
        current = [self._reader.current(element) for element in elements]
        return [element for element in current if element is not None]

    def _encoded(self, value: Any) -> bytes:
        if value is None:
            raise none_added(self._where)
        try:
            return self._prefix + self._element.encode(value)
        except InvalidInputError as error:
            raise error.named(self._where) from error
