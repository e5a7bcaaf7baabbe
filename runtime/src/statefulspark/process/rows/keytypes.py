"""Maps the Arrow type of a key column to a state type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from statefulspark.errors import InvalidInputError
from statefulspark.state.types.types import Types

if TYPE_CHECKING:
    from statefulspark.process.rows.step_spec import StepSpec
    from statefulspark.state.types.types import TypeInformation

__all__ = ["key_type_info", "key_type_infos"]


def key_type_infos(step: StepSpec) -> tuple[TypeInformation, ...]:
    """Return the types of the step's key columns, from which its key codec is made.

    Raises:
        InvalidInputError: a column cannot be a key; names it and the remedy.
    """
    return tuple(key_type_info(step.input_schema.field(name).type, name) for name in step.key_columns)


def key_type_info(kind: pa.DataType, name: str) -> TypeInformation:
    """Return the state type of the key column ``name``.

    Integers of every width are LONG, so that widening a column keeps the state of its keys.
    """
    if pt.is_string(kind) or pt.is_large_string(kind):
        return Types.STRING()
    if pt.is_integer(kind) and not pt.is_uint64(kind):
        return Types.LONG()
    if pt.is_boolean(kind):
        return Types.BOOLEAN()
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    if pt.is_date(kind):
        return Types.SQL_DATE()
    if pt.is_timestamp(kind):
        return Types.SQL_TIMESTAMP()
    if pt.is_decimal(kind):
        return Types.BIG_DEC()
    raise InvalidInputError(
        f"column {name!r} of type {kind} cannot be a key: equal values may have different bytes",
        field="key_columns",
        remedy="Use a string, binary, boolean, integer, decimal, date or timestamp column, for example by casting to string",
    )
