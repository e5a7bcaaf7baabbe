"""DeclaredStates: the states that a step's function has declared, each created once from its descriptor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from statefulspark.state.api.names import RuntimeName
from statefulspark.state.api.states import AggregatingState, ListState, MapState, ReducingState, State, ValueState
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import StateIds, StateInfo
from statefulspark.state.evolution.list_reader import reader_of
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.layers import Layers
from statefulspark.state.store.split_store import SplitStore
from statefulspark.state.tables.background_cleanup import BackgroundCleanup
from statefulspark.state.tables.combining import KeyedAggregatingState, KeyedReducingState
from statefulspark.state.tables.evolved_sweep import evolved_expiring
from statefulspark.state.tables.key_context import KeyContext
from statefulspark.state.tables.key_scan import ScannedState, ScannedTable, idents
from statefulspark.state.tables.lists import KeyedListState
from statefulspark.state.tables.maps import KeyedMapState
from statefulspark.state.tables.raw_keyed import RAW_KEYED, RAW_KEYED_NAME, RawKeyedTable
from statefulspark.state.tables.sweep import Expiring, Sweep
from statefulspark.state.tables.sweep_pace import SweepPace
from statefulspark.state.tables.table import EvolvingTable, StateTable
from statefulspark.state.tables.ttl_lists import ExpiringListState
from statefulspark.state.tables.ttl_states import ExpiringMapState, ExpiringValueState
from statefulspark.state.tables.value import KeyedValueState
from statefulspark.state.timer_queue import TimerQueue
from statefulspark.state.timers import TIMER_KINDS
from statefulspark.state.times import Time
from statefulspark.state.types.base import TypeInformation, type_from_json

_S = TypeVar("_S", bound=State)
_T = TypeVar("_T", bound=StateTable)
_V = TypeVar("_V", bound=EvolvingTable)
_FOREVER_MS: Final = 1 << 60


class RememberedMapDescriptor(MapStateDescriptor):
    """A map state as an earlier copy of the function declared it, opened to remove what it left.

    It is opened as its description has it now, whatever this descriptor says. The function may still declare the state in another way, and that
    one counts.
    """


class DeclaredStates:
    """Creates each declared state once, and returns the same object afterwards.

    Args:
        context: The backend's.
        layers: The backend's.
        state_ids: Numbers the states.
        uid: The step.
        key_codec: Of its keys.
        key_groups: The slot's.

    Attributes:
        tables: By name, the table of each state and of each kind of timers.
        cleanup: The background clean-up of states that expire.
    """

    def __init__(
        self, context: KeyContext, layers: Layers, state_ids: StateIds, *, uid: str, key_codec: KeyCodec, key_groups: KeyGroupRange
    ) -> None:
        self._context = context
        self._layers = layers
        self._state_ids = state_ids
        self._uid = uid
        self._key_types = key_codec.to_json()
        self._key_groups = key_groups
        self._states: dict[str, tuple[StateDescriptor, State]] = {}
        self._combining: dict[str, State] = {}
        self._raw_keyed: RawKeyedTable | None = None
        self._began = False
        self._scans: list[str] = []
        self.tables: dict[str, StateTable] = {}
        self.cleanup = BackgroundCleanup()

    def timer_queues(self, read_states: Callable[[list[bytes]], int]) -> dict[str, TimerQueue]:
        """Make the timers of both kinds; ``read_states`` reads the states of keys whose timers will fire soon."""
        queues = {}
        for kind in TIMER_KINDS:
            description: dict[str, Any] = {"key_type": self._key_types, "type": {}, "ttl_ms": None}
            state_id = self._state_ids.register(self._uid, kind, kind, description).state_id
            base = self._layers.base
            if isinstance(base, SplitStore):
                base.declare_timers(state_id, self._key_groups)
            elif isinstance(base, HeapStore):
                base.keep_ordered(state_id)
            queues[kind] = TimerQueue(self._context, self._layers, state_id, self._key_groups, read_states)
        self.tables.update(queues)
        return queues

    def raw_keyed(self) -> RawKeyedTable:
        """Return the raw keyed state, made when it is first used."""
        if self._raw_keyed is None:
            description: dict[str, Any] = {"key_type": self._key_types, "type": {}, "ttl_ms": None}
            state_id = self._state_ids.register(self._uid, RAW_KEYED_NAME, RAW_KEYED, description).state_id
            where = f"raw keyed state of uid {self._uid!r}"
            self._raw_keyed = RawKeyedTable(
                self._context, self._layers, state_id, key_groups=self._key_groups, where=where, began=self._began
            )
            self.tables[RAW_KEYED_NAME] = self._raw_keyed
        return self._raw_keyed

    def batch_begins(self) -> None:
        """Handle that a batch begins."""
        if not self._began:
            self._began = True
            if self._raw_keyed is not None:
                self._raw_keyed.batch_begins()

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return the state of a descriptor; errors as in ``KeyedStateBackend.value_state``."""
        return self._once(descriptor, lambda: self._cell(descriptor, descriptor.type_info))

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return the state of a descriptor."""
        cell = self._once(descriptor, lambda: self._cell(descriptor, descriptor.type_info))
        return self._combined(descriptor, lambda: KeyedReducingState(cell, descriptor.get_reduce_function().reduce))

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Return the state of a descriptor."""
        cell = self._once(descriptor, lambda: self._cell(descriptor, descriptor.type_info))
        return self._combined(descriptor, lambda: KeyedAggregatingState(cell, descriptor.get_agg_function()))

    def list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the state of a descriptor."""

        def make() -> ListState[Any]:
            info, where = self._register(descriptor)
            parts = (self._context, self._layers, info.state_id)
            element = descriptor.type_info.element
            on_segmented = None if info.segmented else lambda: self._segmented(descriptor)
            if descriptor.ttl is None:
                table = KeyedListState(*parts, element=element, where=where, on_segmented=on_segmented)
                return self._added_evolving(descriptor, info, table)
            expiring = ExpiringListState(*parts, element=element, where=where, config=descriptor.ttl, on_segmented=on_segmented)
            return self._added_evolving(descriptor, info, expiring)

        return self._once(descriptor, make)

    def map_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return the state of a descriptor."""

        def make() -> MapState[Any, Any]:
            info, where = self._register(descriptor)
            opened = _as_described(descriptor, info) if isinstance(descriptor, RememberedMapDescriptor) else descriptor
            parts = (self._context, self._layers, info.state_id)
            key_type, value_type = opened.type_info.key, opened.type_info.value
            if opened.ttl is None:
                return self._added_evolving(opened, info, KeyedMapState(*parts, key_type=key_type, value_type=value_type, where=where))
            expiring = ExpiringMapState(*parts, key_type=key_type, value_type=value_type, where=where, config=opened.ttl)
            return self._added_evolving(opened, info, expiring)

        known = self._states.get(descriptor.name)
        if known is not None and known[0].kind == descriptor.kind:
            if isinstance(descriptor, RememberedMapDescriptor):
                return cast("MapState[Any, Any]", known[1])
            if isinstance(known[0], RememberedMapDescriptor):
                state = make()
                cast("KeyedMapState", state).continue_from(cast("KeyedMapState", known[1]))
                self._states[descriptor.name] = descriptor, state
                return state
        return self._once(descriptor, make)

    def scanned(self, descriptor: StateDescriptor) -> ScannedState:
        """Begin a scan over the keys that have an entry of a state; close it at the end.

        Raises:
            InvalidInputError: As for the state; or another scan is open.
        """
        state = self.state(descriptor)
        if self._scans:
            raise InvalidInputError(
                "the function that it calls for each key cannot call it again",
                field="apply_to_keyed_state",
                remedy="Call it once per state, one after the other",
            )
        self._scans.append(descriptor.name)
        table = cast("ScannedTable", self.tables[descriptor.name])
        state_id = self._register(descriptor)[0].state_id
        return ScannedState(state, lambda: idents(table, self._layers, state_id, self._key_groups), self._scans.clear)

    def state(self, descriptor: StateDescriptor) -> State:
        """Return the state of a descriptor of any kind."""
        makers: dict[type[StateDescriptor], Callable[[Any], State]] = {
            ValueStateDescriptor: self.value_state,
            ListStateDescriptor: self.list_state,
            MapStateDescriptor: self.map_state,
            ReducingStateDescriptor: self.reducing_state,
            AggregatingStateDescriptor: self.aggregating_state,
        }
        for kind, make in makers.items():
            if isinstance(descriptor, kind):
                return make(descriptor)
        raise InvalidInputError(
            f"expected the descriptor of a keyed state, got {type_name(type(descriptor))}",
            field="state descriptor",
            remedy="Pass a ValueStateDescriptor, or that of another kind of keyed state",
        )

    def redeclare(self) -> None:
        """Prepare for a fresh copy of the function: it gets the same tables, but its own reduce and aggregate functions."""
        self._combining = {}

    def _combined(self, descriptor: StateDescriptor, make: Callable[[], _S]) -> _S:
        if descriptor.name not in self._combining:
            self._combining[descriptor.name] = make()
        return cast("_S", self._combining[descriptor.name])

    def _once(self, descriptor: StateDescriptor, make: Callable[[], _S]) -> _S:
        known = self._states.get(descriptor.name)
        if known is None:
            state = make()
            self._states[descriptor.name] = descriptor, state
            return state
        before, declared = known
        if before.kind != descriptor.kind or before.type_info != descriptor.type_info or before.ttl != descriptor.ttl:
            raise InvalidInputError(
                f"declared as {_described(before)} before, now as {_described(descriptor)}",
                field=f"state {descriptor.name!r}",
                remedy="Give each state of a step its own name.",
            )
        return cast("_S", declared)

    def _cell(self, descriptor: StateDescriptor, type_: TypeInformation) -> ValueState[Any]:
        """Make the table of a state that keeps one value per key."""
        info, where = self._register(descriptor)
        parts = (self._context, self._layers, info.state_id)
        if descriptor.ttl is None:
            return self._added_evolving(descriptor, info, KeyedValueState(*parts, type_=type_, where=where))
        expiring = ExpiringValueState(*parts, type_=type_, where=where, config=descriptor.ttl)
        return self._added_evolving(descriptor, info, expiring)

    def _added(self, descriptor: StateDescriptor, table: _T) -> _T:
        self.tables[descriptor.name] = table
        return table

    def _added_evolving(self, descriptor: StateDescriptor, info: StateInfo, table: _V) -> _V:
        """Add a table whose state may have evolved."""
        reader = reader_of(info)
        if reader is not None:
            table.read_with(reader)
            if descriptor.ttl is None and reader.may_have_expired:
                config = StateTtlConfig.new_builder(Time(max(schema.ttl_ms or 0 for schema in info.schemas))).build()
                # Only entries that had expired before time to live was switched off are left to remove, so each key group needs one visit only.
                self._sweep(descriptor.name, info.state_id, evolved_expiring(reader), config, calm_ms=_FOREVER_MS)
        if descriptor.ttl is not None:
            expiring = cast("Expiring", table) if reader is None else evolved_expiring(reader)
            self._sweep(descriptor.name, info.state_id, expiring, descriptor.ttl, calm_ms=descriptor.ttl.get_ttl().to_milliseconds())
        return self._added(descriptor, table)

    def _sweep(self, name: str, state_id: int, expiring: Expiring, config: StateTtlConfig, *, calm_ms: int) -> None:
        """Clean up in the background. What is written expires after ``calm_ms`` at the earliest."""
        sweep = Sweep(self._layers.base, state_id, self._key_groups, expiring, calm_ms)
        pace = SweepPace(config.get_ttl().to_milliseconds(), self._key_groups.last - self._key_groups.first + 1)
        self.cleanup.add(name, sweep, pace, config.get_cleanup_strategies())

    def _segmented(self, descriptor: StateDescriptor) -> None:
        """Let the state's description say that lists are stored in segments, in the changelog of this batch and in all later ones."""
        self._register(descriptor, segmented=True)

    def _register(self, descriptor: StateDescriptor, *, segmented: bool = False) -> tuple[StateInfo, str]:
        """Return the state's description and what errors call it."""
        description: dict[str, Any] = {
            "key_type": self._key_types,
            "type": descriptor.type_info.to_json(),
            "ttl_ms": descriptor.ttl.get_ttl().to_milliseconds() if descriptor.ttl else None,
        }
        if segmented:
            description["segmented"] = True
        if isinstance(descriptor, RememberedMapDescriptor):
            description["remembered"] = True
        info = self._state_ids.register(self._uid, descriptor.name, descriptor.kind, description)
        return info, f"state {descriptor.name!r} of uid {self._uid!r}"


def _described(descriptor: StateDescriptor) -> str:
    lives = "" if descriptor.ttl is None else f" with {descriptor.ttl!r}"
    return f"{descriptor.kind} of {descriptor.type_info!r}{lives}"


def _as_described(descriptor: RememberedMapDescriptor, info: StateInfo) -> MapStateDescriptor:
    described = MapStateDescriptor(RuntimeName(descriptor.name), descriptor.type_info.key, type_from_json(info.type["value"]))
    described.ttl = None if info.ttl_ms is None else StateTtlConfig.new_builder(Time(info.ttl_ms)).build()
    return described
