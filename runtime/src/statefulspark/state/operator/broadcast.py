"""BroadcastStates: the broadcast state of one step in one slot.

All slots have equal copies, because each gets the same rows of the broadcast stream in the same order and makes the same changes. So a slot
restores any copy, and the coordinator does not distribute anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from statefulspark.errors import InvalidInputError
from statefulspark.sizes import short_size
from statefulspark.state.api.broadcast_state import BroadcastState, ReadOnlyBroadcastState
from statefulspark.state.api.descriptors import MapStateDescriptor
from statefulspark.state.encoding.layout import StateIds, StateInfo
from statefulspark.state.evolution.list_reader import reader_of
from statefulspark.state.operator.broadcast_handles import DeclaredBroadcastState, cannot_change
from statefulspark.state.operator.broadcast_map import BroadcastMap
from statefulspark.state.operator.entries import OPERATOR_BROADCAST, BroadcastChanges, BroadcastEntries, OperatorEntry

BROADCAST_STATE_BYTES_MAX: Final = 64 << 20
"""Declared broadcast state of a step in each slot."""


class BroadcastStates:
    """The broadcast state of one step in one slot. Not thread-safe. `OperatorStateBackend` tells it when batches begin and end.

    Args:
        state_ids: Numbers the states.
        uid: The step.
        slot: Number of the slot.
        entries: The committed entries of each state. States that the step does not declare are kept as bytes.
        states: Descriptions of these states.

    Attributes:
        writable: False while rows of the keyed stream, timers or keys of keyed state are processed: a `BroadcastState` that the
            function has kept changes nothing then, because other slots have other rows and keys.
    """

    def __init__(self, state_ids: StateIds, *, uid: str, slot: int, entries: BroadcastEntries, states: Sequence[StateInfo]) -> None:
        self.writable = True
        self._state_ids = state_ids
        self._uid = uid
        self._slot = slot
        self._infos = {info.state_id: info for info in states}
        self._maps = {state_id: BroadcastMap(entries.get(state_id, {})) for state_id in {*self._infos, *entries}}
        self._declared: dict[str, DeclaredBroadcastState] = {}
        self._running = False

    def declare(self, descriptors: Sequence[MapStateDescriptor]) -> None:
        """Declare the states of the step, before its function is opened. A fresh copy of the function declares them again.

        Raises:
            InvalidInputError: A descriptor is not of a map, has a time to live, or has the name of another.
            NotRestorableError: Stored state of the name is of another kind, or of a type that cannot become the declared one.
        """
        self._declared = {}
        for descriptor in descriptors:
            field = f"state {descriptor.name!r}"
            if not isinstance(descriptor, MapStateDescriptor):
                raise InvalidInputError("broadcast state is a map", field=field, remedy="Pass a MapStateDescriptor")
            if descriptor.ttl is not None:
                remedy = "Remove enable_time_to_live from its descriptor, and let rows of the broadcast stream remove entries"
                raise InvalidInputError("broadcast state has no time to live", field=field, remedy=remedy)
            if descriptor.name in self._declared:
                raise InvalidInputError("two broadcast states have this name", field=field, remedy="Give each state its own name")
            self._declared[descriptor.name] = self._registered(descriptor)

    def state(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return a state for rows of the broadcast stream, which may change it.

        Raises:
            InvalidInputError: The step has no such broadcast state.
        """
        return self._find(descriptor).writable

    def read_only(self, descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        """Return a state for rows of the keyed stream and timers, which may only read it.

        Raises:
            InvalidInputError: The step has no such broadcast state.
        """
        return self._find(descriptor).readable

    def states(self) -> list[StateInfo]:
        """Return the descriptions of all states, also of those that are not declared."""
        return list(self._infos.values())

    # -- batches ---------------------------------------------------------------------------------------------------------

    def begin_batch(self) -> None:
        """Begin a batch after the one before was committed or undone."""
        self._running = True

    def changes(self) -> list[OperatorEntry]:
        """Return what the running batch changed, by state id."""
        changed = ((state_id, self._maps[state_id].changes()) for state_id in sorted(self._maps))
        return [OperatorEntry(self._slot, state_id, tuple(items), whole=False) for state_id, items in changed if items]

    def finish_batch(self) -> None:
        """End the running batch."""
        self._running = False
        for each in self._maps.values():
            each.finish()

    def abort_batch(self) -> None:
        """Undo the running batch."""
        self._running = False
        for each in self._maps.values():
            each.undo_running()

    def undo_finished(self) -> None:
        """Undo the finished batch, because it will run again."""
        for each in self._maps.values():
            each.undo_finished()

    def apply_pending(self) -> None:
        """Commit the finished batch. A second call does nothing."""
        for each in self._maps.values():
            each.commit()

    def committed(self) -> list[OperatorEntry]:
        """Return all entries as of the last committed batch. States without entries are left out."""
        held = ((state_id, self._maps[state_id].committed()) for state_id in sorted(self._maps))
        return [OperatorEntry(self._slot, state_id, items, whole=False) for state_id, items in held if items]

    def caught_up(self, changes: BroadcastChanges) -> dict[int, dict[bytes, bytes]]:
        """Return the committed entries with what later batches changed. Nothing here changes.

        Args:
            changes: Changed values by state id and key, None for removed ones.
        """
        caught_up: dict[int, dict[bytes, bytes]] = {}
        for state_id in {*self._maps, *changes}:
            entries: dict[bytes, bytes | None] = dict(self._maps[state_id].committed()) if state_id in self._maps else {}
            entries |= changes.get(state_id, {})
            caught_up[state_id] = {key: value for key, value in entries.items() if value is not None}
        return caught_up

    # -- handles ---------------------------------------------------------------------------------------------------------

    def check_change(self, where: str) -> None:
        """See `ChangeGuard`."""
        if not (self._running and self.writable):
            raise cannot_change(where)

    def check_growth(self, where: str, growth_bytes: int) -> None:
        """See `ChangeGuard`."""
        # States that are no longer declared do not count: the function has no handle with which to clear them.
        size_bytes = sum(each.entries.size_bytes for each in self._declared.values()) + growth_bytes
        if growth_bytes > 0 and size_bytes > BROADCAST_STATE_BYTES_MAX:
            raise InvalidInputError(
                f"the broadcast state of a slot would have {short_size(size_bytes, up=True)}; "
                f"at most {short_size(BROADCAST_STATE_BYTES_MAX)} are supported",
                field=where,
                remedy="Key the stream by what rows look up, and connect it",
            )

    def _registered(self, descriptor: MapStateDescriptor) -> DeclaredBroadcastState:
        description: dict[str, Any] = {"key_type": [], "type": descriptor.type_info.to_json(), "ttl_ms": None}
        info = self._state_ids.register(self._uid, descriptor.name, OPERATOR_BROADCAST, description)
        self._infos[info.state_id] = info
        entries = self._maps.setdefault(info.state_id, BroadcastMap({}))
        # Another declaration, or a reader of another schema, may decode them in another way.
        entries.decoded.clear()
        return DeclaredBroadcastState(
            self, descriptor, entries, where=f"state {descriptor.name!r} of uid {self._uid!r}", reader=reader_of(info)
        )

    def _find(self, descriptor: MapStateDescriptor) -> DeclaredBroadcastState:
        found = self._declared.get(descriptor.name)
        if found is not None and found.descriptor is descriptor:
            return found
        field = f"state {descriptor.name!r}"
        if found is None:
            raise InvalidInputError(
                f"the step {self._uid!r} has no broadcast state of this name",
                field=field,
                remedy="Pass its descriptor to job.broadcast",
            )
        if descriptor.type_info != found.descriptor.type_info:
            raise InvalidInputError(
                f"it was declared as {found.descriptor.type_info!r}, not as {descriptor.type_info!r}",
                field=field,
                remedy="Use the descriptor that job.broadcast got",
            )
        # Functions ask for each row, mostly with the same object.
        found.descriptor = descriptor
        return found
