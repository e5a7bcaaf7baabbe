"""State descriptors: how a function declares its state. PyFlink's names."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.state.api.functions import AggregateFunction, ReduceFunction, as_reduce_function
from statefulspark.state.api.names import check_state_name
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.composites import ListTypeInfo, MapTypeInfo
from statefulspark.state.types.type_variables import ACC, IN, OUT, K_co, T, T_co, V_co

D = TypeVar("D", bound="StateDescriptor")


class StateDescriptor(ABC):  # as in PyFlink: one class per kind of state, nothing to implement
    """Name, type and time to live of one state of a keyed step.

    Args:
        name: 1 .. 255 bytes of UTF-8; state is found again by it after a restart. The names of states that the runtime makes are reserved,
            such as ``_reduce`` and ``_window(…)``.
        type_info: The type of what is stored.

    Attributes:
        kind: ``value``, ``list``, ``map``, ``reducing`` or ``aggregating``.
        name: The name.
        type_info: A list state's is LIST, a map state's MAP, an aggregating state's that of its accumulator.
        ttl: None, or the time to live.

    Raises:
        InvalidInputError: The name is empty, too long or reserved, or a type is none.
    """

    kind: ClassVar[str]
    type_info: TypeInformation

    def __init__(self, name: str, type_info: TypeInformation) -> None:
        check_state_name(name)
        self._name = str(name)
        self.type_info = _checked("type_info", type_info)
        self.ttl: StateTtlConfig | None = None

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire."""
        given: object = ttl_config
        if not isinstance(given, StateTtlConfig):
            raise InvalidInputError(
                f"expected a StateTtlConfig, got {type_name(type(given))}",
                field="ttl_config",
                remedy="Make one: StateTtlConfig.new_builder(Time.hours(1)).build()",
            )
        self.ttl = ttl_config if ttl_config.is_enabled() else None


class ValueStateDescriptor(StateDescriptor, Generic[T_co]):
    """One value per key. A type checker knows its type: this one describes a ``ValueState[int]``.

    >>> from statefulspark import Types
    >>> ValueStateDescriptor("clicks", Types.LONG()).type_info
    Types.LONG()
    """

    kind = "value"

    def __init__(self, name: str, value_type_info: TypeInformation[T_co]) -> None:
        super().__init__(name, _checked("value_type_info", value_type_info))


class ListStateDescriptor(StateDescriptor, Generic[T_co]):
    """A list of elements per key: a `ListState`.

    >>> from statefulspark import Types
    >>> ListStateDescriptor("amounts", Types.DOUBLE()).type_info
    Types.LIST(Types.DOUBLE())
    """

    kind = "list"
    type_info: ListTypeInfo

    def __init__(self, name: str, elem_type_info: TypeInformation[T_co]) -> None:
        super().__init__(name, ListTypeInfo("LIST", _checked("elem_type_info", elem_type_info)))


class MapStateDescriptor(StateDescriptor, Generic[K_co, V_co]):
    """A map per key, a `MapState`; each of its entries is stored on its own.

    >>> from statefulspark import Types
    >>> MapStateDescriptor("last_seen", Types.STRING(), Types.LONG()).type_info
    Types.MAP(Types.STRING(), Types.LONG())
    """

    kind = "map"
    type_info: MapTypeInfo

    def __init__(self, name: str, key_type_info: TypeInformation[K_co], value_type_info: TypeInformation[V_co]) -> None:
        types = _checked("key_type_info", key_type_info), _checked("value_type_info", value_type_info)
        super().__init__(name, MapTypeInfo(*types))


class ReducingStateDescriptor(StateDescriptor, Generic[T]):
    """One value per key, combined from all that were added: a `ReducingState`.

    >>> from statefulspark import Types
    >>> ReducingStateDescriptor("total", lambda total, amount: total + amount, Types.LONG()).get_reduce_function().reduce(1, 2)
    3

    Raises:
        InvalidInputError: As in `StateDescriptor`, or ``reduce_function`` is neither a ReduceFunction nor callable.
    """

    kind = "reducing"

    def __init__(self, name: str, reduce_function: ReduceFunction[T] | Callable[[T, T], T], type_info: TypeInformation[T]) -> None:
        super().__init__(name, type_info)
        self._reduce_function = as_reduce_function(reduce_function, "reduce_function")

    def get_reduce_function(self) -> ReduceFunction[T]:
        """Return the ReduceFunction; one that calls the given function if that was none."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor, Generic[IN, ACC, OUT]):
    """One accumulator per key, from which a result is made: an `AggregatingState`.

    >>> from statefulspark import AggregateFunction, Types
    >>> class Count(AggregateFunction):
    ...     def create_accumulator(self):
    ...         return 0
    ...
    ...     def add(self, value, accumulator):
    ...         return accumulator + 1
    ...
    ...     def get_result(self, accumulator):
    ...         return accumulator
    ...
    ...     def merge(self, acc_a, acc_b):
    ...         return acc_a + acc_b
    >>> AggregatingStateDescriptor("clicks", Count(), Types.LONG()).kind
    'aggregating'

    Raises:
        InvalidInputError: As in `StateDescriptor`, or ``agg_function`` is no AggregateFunction.
    """

    kind = "aggregating"

    def __init__(self, name: str, agg_function: AggregateFunction[IN, ACC, OUT], state_type_info: TypeInformation) -> None:
        super().__init__(name, _checked("state_type_info", state_type_info))
        if not isinstance(agg_function, AggregateFunction):
            raise InvalidInputError("expected an AggregateFunction", field="agg_function")
        self._agg_function = agg_function

    def get_agg_function(self) -> AggregateFunction[IN, ACC, OUT]:
        """Return the AggregateFunction."""
        return self._agg_function


def descriptor_of(kind: type[D], given: D) -> D:
    """Return a descriptor of the kind that a method takes.

    Raises:
        InvalidInputError: It is none, or of another kind of state.
    """
    if not isinstance(given, kind):
        raise InvalidInputError(
            f"expected {type_name(kind)}, got {type_name(type(given))}",
            field="state_descriptor",
            remedy="Pass the descriptor that the method takes, or use the method of the descriptor's kind",
        )
    return given


def _checked(field: str, type_info: TypeInformation) -> TypeInformation:
    if not isinstance(type_info, TypeInformation):
        raise InvalidInputError(f"expected a type, got {type(type_info).__name__}", field=field, remedy="Use Types, e.g. Types.LONG().")
    return type_info
