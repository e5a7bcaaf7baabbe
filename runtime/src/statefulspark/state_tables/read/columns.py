"""The columns of a table for the keys and values of a state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from statefulspark.checkpoint.formats.pipeline import SAME_KEY, StepKey
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.types.arrow_types import Conversions, arrow_type, field_names
from statefulspark.state_tables.read.arrays import array_of, decimal_array, field_arrays
from statefulspark.state_tables.read.payloads import Payloads

BYTES: Final = {"type": "PRIMITIVE_ARRAY", "element": {"type": "BYTE"}}
_TAKEN: Final = "state_"


def distinct(fields: Iterable[pa.Field]) -> pa.Schema:
    """Return a schema of columns in which no two names are equal, also without regard to case, as Spark compares them.

    >>> distinct([pa.field("sku", pa.string()), pa.field("SKU", pa.int64())]).names
    ['sku', 'state_SKU']
    """
    named: list[pa.Field] = []
    taken: set[str] = set()
    for field in fields:
        name = field.name
        while name.casefold() in taken:
            name = _TAKEN + name
        taken.add(name.casefold())
        named.append(field.with_name(name))
    return pa.schema(named)


class KeyColumns:
    """The columns of a step's key, with the names and types that they have in the stream.

    Args:
        info: A state of the step.
        step: The step's key, None if the checkpoint does not say: then columns are called ``key``, or ``key_1``, ``key_2`` and so on.
        conversions: Of types that have no one Arrow type.
    """

    def __init__(self, info: StateInfo, step: StepKey | None, conversions: Conversions) -> None:
        self._types = info.key_type
        self._conversions = conversions
        count = len(info.key_type)
        streamed = step.columns if step is not None and len(step.columns) == count else None
        names = [each.name.partition(SAME_KEY)[0] for each in streamed or ()]
        if streamed is None:
            names = ["key"] if count == 1 else [f"key_{number}" for number in range(1, count + 1)]
        kinds = [None if streamed is None else streamed[place].type for place in range(count)]
        types = [_key_type(each, kind, conversions) for each, kind in zip(info.key_type, kinds, strict=True)]
        self.fields = [pa.field(name, type_) for name, type_ in zip(names, types, strict=True)]

    def arrays(self, keys: Payloads) -> list[pa.Array]:
        """Decode keys, an array per column; errors as of `array_of`."""
        columns = [keys]
        if len(self._types) > 1:
            columns, rest = keys.fields(len(self._types))
            if rest.any():
                raise ValueError("trailing bytes")
        return [self._array(place, column) for place, column in enumerate(columns)]

    def _array(self, place: int, payloads: Payloads) -> pa.Array:
        wanted = self.fields[place].type
        if self._types[place]["type"] == "BIG_DEC":
            texts = array_of(self._types[place], payloads, Conversions(decimals_as_text=True))
            return texts if pa.types.is_string(wanted) else decimal_array(list(map(Decimal, texts.to_pylist())), wanted)
        found = array_of(self._types[place], payloads, self._conversions)
        return found if found.type == wanted else found.view(wanted)


def _key_type(description: Mapping[str, Any], kind: str | None, conversions: Conversions) -> pa.DataType:
    """Return the Arrow type of a key column. Integers of every width are ``int64``, as they are stored."""
    stored = arrow_type(description, conversions)
    if kind == "timestamp" and stored == pa.timestamp("us"):
        return pa.timestamp("us", "UTC")
    if kind is not None and kind.startswith("decimal(") and pa.types.is_decimal(stored):
        precision, scale = map(int, kind.removeprefix("decimal(").rstrip(")").split(","))
        return pa.decimal128(precision, scale)
    return stored


class ValueColumns:
    """The columns of a state's values: the fields of a row, or one column ``value``.

    Args:
        description: Type of the values.
        conversions: Of types that have no one Arrow type.
        typed: False for a column of bytes, because payloads are not all of the type.
    """

    def __init__(self, description: Mapping[str, Any], conversions: Conversions, *, typed: bool) -> None:
        self._conversions = conversions
        if not typed:
            description = {"type": "LIST", "element": BYTES} if description.get("type") == "LIST" else BYTES
        self._type = description
        self._is_row = description.get("type") == "ROW"
        whole = arrow_type(description, conversions)
        names = field_names(description) if self._is_row else ()
        self.fields = [pa.field(name, whole.field(place).type) for place, name in enumerate(names)]
        if not self._is_row:
            self.fields = [pa.field("value", whole)]

    def arrays(self, payloads: Payloads) -> list[pa.Array]:
        """Decode values, an array per column; errors as of `array_of`."""
        if self._is_row:
            return field_arrays(self._type, payloads, self._conversions)
        return [array_of(self._type, payloads, self._conversions)]
