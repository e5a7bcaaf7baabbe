"""Maps the Arrow schema of a step's input to the state type of its rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from statefulspark.state.types.composites import RowTypeInfo
from statefulspark.state.types.types import TypeInformation, Types

__all__ = ["row_type_info", "type_info"]


def row_type_info(schema: pa.Schema) -> RowTypeInfo:
    """Return the type of rows of ``schema``, by name.

    Numbers have the widest type of their kind, so that widening a column keeps the state. A column that no other state type fits
    is pickled.

    >>> row_type_info(pa.schema({"user": pa.string(), "amount": pa.int32()}))
    Types.ROW_NAMED(['user', 'amount'], [Types.STRING(), Types.LONG()])
    """
    return Types.ROW_NAMED(schema.names, [type_info(kind) for kind in schema.types])


def type_info(kind: pa.DataType) -> TypeInformation:
    """Return the type of values of a column; see `row_type_info`."""
    scalar = _scalar(kind)
    if scalar is not None:
        return scalar
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return Types.LIST(type_info(kind.value_type))
    if pt.is_map(kind):
        return Types.MAP(type_info(kind.key_type), type_info(kind.item_type))
    if pt.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return Types.ROW_NAMED([field.name for field in fields], [type_info(field.type) for field in fields])
    return Types.PICKLED_BYTE_ARRAY()


def _scalar(kind: pa.DataType) -> TypeInformation | None:  # a table
    if pt.is_string(kind) or pt.is_large_string(kind):
        return Types.STRING()
    if pt.is_boolean(kind):
        return Types.BOOLEAN()
    if pt.is_integer(kind):
        return Types.LONG()
    if pt.is_floating(kind):
        return Types.DOUBLE()
    if pt.is_decimal(kind):
        return Types.BIG_DEC()
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    if pt.is_date(kind):
        return Types.SQL_DATE()
    if pt.is_time(kind):
        return Types.SQL_TIME()
    if pt.is_timestamp(kind):
        return Types.SQL_TIMESTAMP()
    return None
