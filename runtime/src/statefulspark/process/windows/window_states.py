"""States of one key and window: map states whose keys begin with the bytes of the window."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.functions import RuntimeContext
from statefulspark.state.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
    descriptor_of,
)
from statefulspark.state.api.keyed_state_store import KeyedStateStore
from statefulspark.state.api.names import RuntimeName
from statefulspark.state.api.states import ListState, MapState, State, ValueState
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.tables.combining import KeyedAggregatingState, KeyedReducingState, none_added
from statefulspark.state.tables.declared import RememberedMapDescriptor
from statefulspark.state.tables.maps import KeyedMapState
from statefulspark.state.times import Time
from statefulspark.state.types.base import TypeInformation, type_from_json
from statefulspark.state.types.types import Types

__all__ = ["BYTES", "SelectedWindow", "WindowStates", "bytes_map"]

BYTES: Final = Types.PRIMITIVE_ARRAY(Types.BYTE())


def bytes_map(context: RuntimeContext, name: RuntimeName, value_type: TypeInformation, ttl: StateTtlConfig | None = None) -> KeyedMapState:
    """Return the map state ``name``, with keys that are bytes."""
    descriptor = MapStateDescriptor(name, BYTES, value_type)
    descriptor.ttl = ttl
    return cast("KeyedMapState", context.get_map_state(descriptor))


class SelectedWindow:
    """The bytes of the window whose states are accessed; shared by these states."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = b""


class WindowStates(KeyedStateStore):
    """States per key and window. Access means the current key and the selected window.

    Args:
        context: Of the step.
        owner: ``trigger`` or ``window``, part of the names of the states.
        scope: Kinds of windows and contents, part of the names of the states.
        selected: The window.

    Which states a window has is remembered, to remove them also where this copy of the function has not declared them: a function may
    declare a state in some windows only.
    """

    def __init__(self, context: RuntimeContext, owner: str, scope: str, selected: SelectedWindow) -> None:
        self._context = context
        self._owner = owner
        self._selected = selected
        self._states: dict[str, tuple[StateDescriptor, Any]] = {}
        self._maps: dict[str, KeyedMapState] = {}
        self._scope = scope
        self._names = bytes_map(context, RuntimeName(f"_{owner}_states({scope})"), Types.STRING())

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return cast("ValueState[Any]", self.get(descriptor_of(ValueStateDescriptor, state_descriptor)))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return cast("ListState[Any]", self.get(descriptor_of(ListStateDescriptor, state_descriptor)))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return cast("MapState[Any, Any]", self.get(descriptor_of(MapStateDescriptor, state_descriptor)))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> KeyedReducingState:
        return cast("KeyedReducingState", self.get(descriptor_of(ReducingStateDescriptor, state_descriptor)))

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> KeyedAggregatingState:
        return cast("KeyedAggregatingState", self.get(descriptor_of(AggregatingStateDescriptor, state_descriptor)))

    def get(self, descriptor: StateDescriptor) -> State:
        """Return the state of a descriptor of any kind; the same name gives the same object."""
        known = self._states.get(descriptor.name)
        if known is None or known[0] is not descriptor:
            known = self._declare(descriptor, known)
        return cast("State", known[1])

    def may_exist(self, *, look_again: bool = False) -> bool:
        """Return False if no window of the current key's key group has a state; see `KeyedMapState.may_have_entries`."""
        return self._names.may_have_entries(look_again=look_again)

    def clear(self) -> None:
        """Remove all states of the selected window."""
        # Most triggers have no state, so that this is all that a window costs.
        if not self.may_exist():
            return
        window = self._selected.data
        remembered = self._names.get(window)
        if remembered is None:
            return
        self._names.remove(window)
        for name, (value_type, ttl_ms, spread) in json.loads(remembered).items():
            table = self._remembered_map(name, type_from_json(value_type), _ttl(ttl_ms))
            if not spread:
                _remove(table, window)
                continue
            for key in table.prefix_keys(window):
                table.remove(key)

    def merge(self, descriptor: StateDescriptor, sources: Iterable[bytes]) -> None:
        """Merge the state of other windows into that of the selected one, and remove it there.

        Raises:
            InvalidInputError: It is no reducing, aggregating or list state.
        """
        state, target = self.get(descriptor), self._selected.data
        table = self._maps[descriptor.name]
        found = [(source, table.get(source)) for source in sources if table.contains(source)]
        for source, value in found:
            table.remove(source)
            self._selected.data = target
            if isinstance(state, KeyedReducingState):
                state.add(value)
            elif isinstance(state, _WindowListState):
                state.add_all(value)
            elif isinstance(descriptor, AggregatingStateDescriptor):
                mine = table.get(target)
                table.put(target, value if mine is None else descriptor.get_agg_function().merge(mine, value))
                self._remember(descriptor)
            else:
                raise InvalidInputError(
                    f"{descriptor.kind} state cannot be merged",
                    field=f"state {descriptor.name!r}",
                    remedy="Use reducing, aggregating or list state",
                )

    def _declare(self, descriptor: StateDescriptor, known: tuple[StateDescriptor, Any] | None) -> tuple[StateDescriptor, Any]:
        if known is not None:
            before = known[0]
            if before.kind != descriptor.kind or before.type_info != descriptor.type_info or before.ttl != descriptor.ttl:
                raise InvalidInputError(
                    f"declared as {before.kind} of {before.type_info!r} before, now as {descriptor.kind} of {descriptor.type_info!r}",
                    field=f"state {descriptor.name!r}",
                    remedy="Give each state its own name",
                )
        table = self._map(descriptor.name, _value_type(descriptor), descriptor.ttl)
        state = _state_on(table, descriptor, self._selected, lambda: self._remember(descriptor))
        self._states[descriptor.name] = descriptor, state
        return descriptor, state

    def _map(self, name: str, value_type: TypeInformation, ttl: StateTtlConfig | None) -> KeyedMapState:
        if name not in self._maps:
            self._maps[name] = bytes_map(self._context, self._full_name(name), value_type, ttl)
        return self._maps[name]

    def _remembered_map(self, name: str, value_type: TypeInformation, ttl: StateTtlConfig | None) -> KeyedMapState:
        """Return the map of a state that this copy of the function may not have declared, or will declare with another time to live."""
        if name in self._maps:
            return self._maps[name]
        descriptor = RememberedMapDescriptor(self._full_name(name), BYTES, value_type)
        descriptor.ttl = ttl
        return cast("KeyedMapState", self._context.get_map_state(descriptor))

    def _full_name(self, name: str) -> RuntimeName:
        return RuntimeName(f"_window.{self._owner}({self._scope}, {name})")

    def _remember(self, descriptor: StateDescriptor) -> None:
        """Note that the selected window has the state; called with each write."""
        window = self._selected.data
        known: str = self._names.get(window) or "{}"
        if f"{json.dumps(descriptor.name)}: [" in known:
            return
        ttl_ms = None if descriptor.ttl is None else descriptor.ttl.get_ttl().to_milliseconds()
        entry = _value_type(descriptor).to_json(), ttl_ms, isinstance(descriptor, MapStateDescriptor)
        self._names.put(window, json.dumps({**json.loads(known), descriptor.name: entry}, sort_keys=True))


def _ttl(milliseconds: int | None) -> StateTtlConfig | None:
    return None if milliseconds is None else StateTtlConfig.new_builder(Time(milliseconds)).build()


def _value_type(descriptor: StateDescriptor) -> TypeInformation:
    return descriptor.type_info.value if isinstance(descriptor, MapStateDescriptor) else descriptor.type_info


Remember = Callable[[], None]


def _state_on(table: KeyedMapState, descriptor: StateDescriptor, selected: SelectedWindow, remember: Remember) -> State:
    if isinstance(descriptor, MapStateDescriptor):
        return _WindowMapState(table, selected, remember, descriptor.type_info.key)
    if isinstance(descriptor, ListStateDescriptor):
        return _WindowListState(table, selected, remember)
    cell = _WindowValueState(table, selected, remember)
    if isinstance(descriptor, ReducingStateDescriptor):
        return KeyedReducingState(cell, descriptor.get_reduce_function().reduce)
    return KeyedAggregatingState(cell, descriptor.get_agg_function()) if isinstance(descriptor, AggregatingStateDescriptor) else cell


class _WindowValueState(ValueState[Any]):
    __slots__ = ("_remember", "_selected", "_table")

    def __init__(self, table: KeyedMapState, selected: SelectedWindow, remember: Remember) -> None:
        self._table = table
        self._selected = selected
        self._remember = remember

    def value(self) -> Any:
        return self._table.get(self._selected.data)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._table.put(self._selected.data, value)
            self._remember()

    def clear(self) -> None:
        _remove(self._table, self._selected.data)


class _WindowListState(ListState[Any]):
    """One stored value; window contents, which grow, are kept element by element instead (`window_contents`)."""

    __slots__ = ("_remember", "_selected", "_table")

    def __init__(self, table: KeyedMapState, selected: SelectedWindow, remember: Remember) -> None:
        self._table = table
        self._selected = selected
        self._remember = remember

    def get(self) -> Iterator[Any]:
        return iter(self._table.get(self._selected.data) or ())

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        self.update([*self.get(), *values])

    def update(self, values: Iterable[Any]) -> None:
        elements = list(values)
        if any(each is None for each in elements):
            raise none_added()
        if elements:
            self._table.put(self._selected.data, elements)
            self._remember()
        else:
            self.clear()

    def clear(self) -> None:
        _remove(self._table, self._selected.data)


class _WindowMapState(MapState[Any, Any]):
    __slots__ = ("_decode", "_encode", "_remember", "_selected", "_table")

    def __init__(self, table: KeyedMapState, selected: SelectedWindow, remember: Remember, key_type: TypeInformation) -> None:
        self._table = table
        self._selected = selected
        self._remember = remember
        self._encode: Callable[[Any], bytes] = key_type.encode
        self._decode: Callable[[bytes], Any] = key_type.decode

    def get(self, key: Any) -> Any:
        return self._table.get(self._key(key))

    def contains(self, key: Any) -> bool:
        return self._table.contains(self._key(key))

    def put(self, key: Any, value: Any) -> None:
        self._table.put(self._key(key), value)
        self._remember()

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._table.remove(self._key(key))

    def items(self) -> Iterator[tuple[Any, Any]]:
        width = len(self._selected.data)
        return ((self._decode(key[width:]), value) for key, value in self._table.prefix_items(self._selected.data))

    def keys(self) -> Iterator[Any]:
        return (key for key, _ in self.items())

    def values(self) -> Iterator[Any]:
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        return next(self.items(), None) is None

    def clear(self) -> None:
        for key in self._table.prefix_keys(self._selected.data):
            self._table.remove(key)

    def _key(self, key: Any) -> bytes:
        return self._selected.data + self._encode(key)


def _remove(table: KeyedMapState, key: bytes) -> None:
    """Remove an entry; what is not there leaves no delete in the changelog."""
    try:
        stored = table.contains(key)
    except InvalidInputError:
        stored = True  # it does not fit the type to which the declaration returned, and nobody reads it any more
    if stored:
        table.remove(key)
