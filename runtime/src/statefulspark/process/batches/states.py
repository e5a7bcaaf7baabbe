"""Value states of many keys, read and written as Arrow arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn, cast

import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.contexts import SlotRuntimeContext
from statefulspark.process.batches.conversions import Misfit, cast_safely
from statefulspark.process.batches.functions import BatchRuntimeContext, BatchValueState
from statefulspark.process.output.output_types import ValueType
from statefulspark.process.rows.columns import python_values
from statefulspark.state.api.descriptors import StateDescriptor, ValueStateDescriptor, descriptor_of
from statefulspark.state.tables.value import KeyedValueState
from statefulspark.state.types.arrow_types import AS_DECLARED, arrow_type
from statefulspark.state.types.base import TypeJson

__all__ = ["CallKeys", "KeyedBatchContext", "without_arrow"]

_DIRECT: Final = frozenset(
    {"BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "BOOLEAN", "STRING", "BIG_DEC", "SQL_DATE", "SQL_TIME", "SQL_TIMESTAMP"}
)
"""Types whose values Arrow returns as the state keeps them."""
_WITHOUT_ARROW: Final = frozenset({"PICKLED_BYTE_ARRAY", "BIG_INT", "INSTANT"})


class CallKeys:
    """The keys of the call that runs, by their idents; None between calls."""

    __slots__ = ("idents",)

    def __init__(self) -> None:
        self.idents: Sequence[bytes] | None = None

    def of_state(self, where: str) -> Sequence[bytes]:
        """Return the idents.

        Raises:
            InvalidInputError: No call runs.
        """
        if self.idents is None:
            raise InvalidInputError("there are no current keys", field=where, remedy="Use keyed state only in process_batch and on_timers")
        return self.idents


class KeyedBatchState(BatchValueState):
    """A table's values of the keys of a call.

    Args:
        table: The state.
        keys: Of the call.
        kind: Arrow type of the values.
        type_name: Their state type.
        where: Names state and step in errors.
    """

    __slots__ = ("_convert", "_direct", "_keys", "_kind", "_table", "_where")

    def __init__(self, table: KeyedValueState, keys: CallKeys, kind: pa.DataType, *, type_name: str, where: str) -> None:
        self._table = table
        self._keys = keys
        self._kind = kind
        self._where = where
        self._direct = type_name in _DIRECT
        self._convert = ValueType(kind)

    def get_batch(self) -> pa.Array:
        values = self._table.values(self._keys.of_state(self._where))
        try:
            return pa.array(values, self._kind) if self._direct else self._convert.array(values)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise InvalidInputError(f"a stored value does not fit {self._kind}", field=self._where, remedy="Use a row function") from error

    def put_batch(self, values: pa.Array) -> None:
        idents = self._keys.of_state(self._where)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        try:
            given = values if isinstance(values, pa.Array) else pa.array(values)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"put_batch got {type(values).__name__}, which is no array of values",
                field=self._where,
                remedy="Pass an Arrow or NumPy array",
            ) from error
        if len(given) != len(idents):
            raise InvalidInputError(
                f"put_batch got {len(given)} values for {len(idents)} keys",
                field=self._where,
                remedy="Pass one value per key of the call; null removes the value of a key",
            )
        try:
            array = cast_safely(given, self._kind)
        except Misfit as error:
            raise InvalidInputError(f"put_batch got {error}", field=self._where, remedy=f"Cast the array to {self._kind}") from error
        self._table.put_values(idents, _values(array), checked=self._direct)

    def clear(self) -> None:
        self._table.put_values(idents := self._keys.of_state(self._where), [None] * len(idents), checked=True)

    def value(self) -> NoReturn:
        raise self._for_rows("value", "get_batch")

    def update(self, value: Any) -> NoReturn:
        del value
        raise self._for_rows("update", "put_batch")

    def _for_rows(self, method: str, instead: str) -> InvalidInputError:
        return InvalidInputError(f"{method}() is for one key, and a batch function has many", field=self._where, remedy=f"Use {instead}()")


def _values(array: pa.Array) -> list[Any]:
    try:
        return python_values(array)
    except InvalidInputError as error:  # a date outside the years 1 to 9999
        raise InvalidInputError(f"a value of type {array.type} is out of range", field="put_batch", remedy="Check the values") from error


class KeyedBatchContext(SlotRuntimeContext, BatchRuntimeContext):
    """A batch function's view of its slot."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keys = CallKeys()

    def get_state(self, state_descriptor: ValueStateDescriptor) -> BatchValueState:
        descriptor = descriptor_of(ValueStateDescriptor, state_descriptor)
        description = descriptor.type_info.to_json()
        if (without := without_arrow(description)) is not None:
            raise InvalidInputError(
                f"Types.{without}() has no Arrow type, which get_batch and put_batch need",
                field=self._where(descriptor),
                remedy="Declare another type, or use a KeyedProcessFunction",
            )
        return self.state_of(descriptor, arrow_type(description, AS_DECLARED))

    def state_of(self, descriptor: ValueStateDescriptor, kind: pa.DataType) -> BatchValueState:
        """Return a state whose values have the Arrow type ``kind``; errors as of `get_state`."""
        if descriptor.ttl is not None:
            raise InvalidInputError(
                "time to live is not available to batch functions",
                field=self._where(descriptor),
                remedy="Remove it and clear values with on_timers, or use a KeyedProcessFunction",
            )
        table = cast("KeyedValueState", self._backend.value_state(descriptor))
        return KeyedBatchState(table, self.keys, kind, type_name=descriptor.type_info.name, where=self._where(descriptor))

    def get_list_state(self, state_descriptor: StateDescriptor) -> NoReturn:
        raise self._refused("get_list_state", state_descriptor)

    def get_map_state(self, state_descriptor: StateDescriptor) -> NoReturn:
        raise self._refused("get_map_state", state_descriptor)

    def get_reducing_state(self, state_descriptor: StateDescriptor) -> NoReturn:
        raise self._refused("get_reducing_state", state_descriptor)

    def get_aggregating_state(self, state_descriptor: StateDescriptor) -> NoReturn:
        raise self._refused("get_aggregating_state", state_descriptor)

    def get_current_key_group_index(self) -> NoReturn:
        raise InvalidInputError(
            "a batch function has no current key", field=f"uid {self._uid!r}", remedy="Use a KeyedProcessFunction for state by key group"
        )

    def _refused(self, method: str, descriptor: StateDescriptor) -> InvalidInputError:
        return InvalidInputError(
            f"{method} is not available to batch functions, which have value states only",
            field=self._where(descriptor),
            remedy="Declare a ValueStateDescriptor, or use a KeyedProcessFunction",
        )

    def _where(self, descriptor: StateDescriptor) -> str:
        name = getattr(descriptor, "name", None)
        return f"uid {self._uid!r}" if name is None else f"state {name!r} of uid {self._uid!r}"


def without_arrow(description: TypeJson) -> str | None:
    """Return the name of a part of the type that batch functions cannot have."""
    if description["type"] in _WITHOUT_ARROW:
        return str(description["type"])
    parts = [description[name] for name in ("element", "key", "value") if name in description]
    return next(filter(None, map(without_arrow, [*parts, *description.get("fields", ())])), None)
