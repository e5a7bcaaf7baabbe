"""State descriptors: how a function declares its state. PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from statefulspark.errors import InvalidInputError
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.composites import ListType, MapType

IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")

StateNameMaxBytes = 255


class ReduceFunction(ABC, Generic[IN]):
    """Combines two values into one; must be associative."""

    @abstractmethod
    def reduce(self, value1: IN, value2: IN) -> IN:
        """Return the combination of ``value1`` (kept so far) and ``value2`` (new)."""


class AggregateFunction(ABC, Generic[IN, ACC, OUT]):
    """Folds values into an accumulator and makes a result of it."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return the accumulator of nothing."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Return ``accumulator`` with ``value`` added; it may be changed in place."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the result so far."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return both accumulators in one."""


class StateDescriptor(ABC):
    """Name, type and time to live of one state of a keyed step.

    Attributes:
        kind: ``value``, ``list``, ``map``, ``reducing`` or ``aggregating``.
        name: 1 .. 255 bytes of UTF-8; state is found again by it after a restart.
        ttl: None, or the time to live.
    """

    kind: str

    def __init__(self, name: str) -> None:
        if not 1 <= len(name.encode(errors="replace")) <= StateNameMaxBytes:
            raise InvalidInputError("expected 1 to 255 bytes of text", field="state name")
        self.name = name
        self.ttl: StateTtlConfig | None = None

    @property
    @abstractmethod
    def stored_type(self) -> TypeInformation:
        """The type as registered: a list state's is LIST, a map state's MAP, an aggregating state's that of its accumulator."""

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire."""
        self.ttl = ttl_config if ttl_config.is_enabled() else None


class ValueStateDescriptor(StateDescriptor):
    """One value per key."""

    kind = "value"

    def __init__(self, name: str, value_type_info: TypeInformation) -> None:
        super().__init__(name)
        self.value_type = _checked("value_type_info", value_type_info)

    @property
    def stored_type(self) -> TypeInformation:
        return self.value_type


class ListStateDescriptor(StateDescriptor):
    """A list of elements per key."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: TypeInformation) -> None:
        super().__init__(name)
        self.element_type = _checked("elem_type_info", elem_type_info)

    @property
    def stored_type(self) -> TypeInformation:
        return ListType("LIST", self.element_type)


class MapStateDescriptor(StateDescriptor):
    """A map per key; each of its entries is stored on its own."""

    kind = "map"

    def __init__(self, name: str, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        super().__init__(name)
        self.key_type = _checked("key_type_info", key_type_info)
        self.value_type = _checked("value_type_info", value_type_info)

    @property
    def stored_type(self) -> TypeInformation:
        return MapType(self.key_type, self.value_type)


class ReducingStateDescriptor(StateDescriptor):
    """One value per key, combined from all that were added."""

    kind = "reducing"

    def __init__(self, name: str, reduce_function: ReduceFunction[Any] | Callable[[Any, Any], Any], type_info: TypeInformation) -> None:
        super().__init__(name)
        if not isinstance(reduce_function, ReduceFunction) and not callable(reduce_function):
            raise InvalidInputError("expected a ReduceFunction or a function of two values", field="reduce_function")
        self.reduce: Callable[[Any, Any], Any] = reduce_function.reduce if isinstance(reduce_function, ReduceFunction) else reduce_function
        self.value_type = _checked("type_info", type_info)

    @property
    def stored_type(self) -> TypeInformation:
        return self.value_type


class AggregatingStateDescriptor(StateDescriptor):
    """One accumulator per key."""

    kind = "aggregating"

    def __init__(self, name: str, agg_function: AggregateFunction[Any, Any, Any], state_type_info: TypeInformation) -> None:
        super().__init__(name)
        if not isinstance(agg_function, AggregateFunction):
            raise InvalidInputError("expected an AggregateFunction", field="agg_function")
        self.aggregate = agg_function
        self.value_type = _checked("state_type_info", state_type_info)

    @property
    def stored_type(self) -> TypeInformation:
        return self.value_type


def _checked(field: str, type_info: TypeInformation) -> TypeInformation:
    if not isinstance(type_info, TypeInformation):
        raise InvalidInputError(f"expected a type, got {type(type_info).__name__}", field=field, remedy="Use Types, e.g. Types.LONG().")
    return type_info
