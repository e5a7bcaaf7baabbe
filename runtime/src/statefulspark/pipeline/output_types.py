"""Spark's schema of a step's output, from any of the forms in which users declare it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from statefulspark.errors import InvalidInputError
from statefulspark.process.batches.aggregates import Aggregate
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.composites import ListTypeInfo, MapTypeInfo, PrimitiveArray, RowTypeInfo, TupleTypeInfo

OutputType = T.StructType | str | TypeInformation
"""A StructType, DDL text such as ``"user STRING, clicks BIGINT"``, or a type of `Types`."""

_SCALARS: Final[dict[str, T.DataType]] = {
    "STRING": T.StringType(),
    "CHAR": T.StringType(),
    "BOOLEAN": T.BooleanType(),
    "BYTE": T.ByteType(),
    "SHORT": T.ShortType(),
    "INT": T.IntegerType(),
    "LONG": T.LongType(),
    "FLOAT": T.FloatType(),
    "DOUBLE": T.DoubleType(),
    "BIG_INT": T.DecimalType(38, 0),
    "SQL_DATE": T.DateType(),
    "SQL_TIMESTAMP": T.TimestampNTZType(),
}


def output_struct(given: OutputType, field: str) -> T.StructType:
    """The columns of ``given``. As in Flink, fields without names are called ``f0``, ``f1`` and so on, also that of a type without fields.

    Raises:
        InvalidInputError: It is none of the forms, or a type has no counterpart in Spark; names ``field``.
    """
    if isinstance(given, T.StructType):
        return _without_lengths(given)
    if isinstance(given, TypeInformation):
        found = _data_type(given, field)
        return found if isinstance(found, T.StructType) else T.StructType([T.StructField("f0", found)])
    if not isinstance(given, str):
        raise InvalidInputError(
            f"expected DDL text or a type, got {type(given).__name__}",
            field=field,
            remedy="Write 'name type, name type', or give a StructType or a type of Types",
        )
    schema = T.StructType.fromDDL(given)
    if not isinstance(schema, T.StructType):
        raise InvalidInputError(f"{given!r} is not a list of columns", field=field, remedy="Write 'name type, name type'")
    return _without_lengths(schema)


def _without_lengths(schema: T.StructType) -> T.StructType:
    """The same columns with CHAR and VARCHAR as STRING, which they are in Spark's rows: only tables know their lengths."""
    found = T.StructType([T.StructField(each.name, _stored(each.dataType), each.nullable, each.metadata) for each in schema.fields])
    return schema if found == schema else found


def _stored(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.CharType | T.VarcharType):
        return T.StringType()
    if isinstance(kind, T.StructType):
        return _without_lengths(kind)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_stored(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        return T.MapType(_stored(kind.keyType), _stored(kind.valueType), kind.valueContainsNull)
    return kind


def aggregate_type(aggregate: Aggregate, fields: Mapping[str, T.StructField]) -> T.DataType:
    """The type of an aggregate of a stream with these columns, which has been checked: that of Spark's function."""
    if aggregate.kind == "count":
        return T.LongType()
    kind = fields[aggregate.columns[0]].dataType
    if aggregate.kind != "sum_":
        return kind
    if isinstance(kind, T.DecimalType):
        return T.DecimalType(min(38, kind.precision + 10), kind.scale)
    return T.DoubleType() if isinstance(kind, T.FractionalType) else T.LongType()


def _data_type(kind: TypeInformation, field: str) -> T.DataType:
    if isinstance(kind, RowTypeInfo):
        return _struct(kind.get_field_names(), kind.get_field_types(), field)
    if isinstance(kind, TupleTypeInfo):
        types = kind.get_field_types()
        return _struct([f"f{index}" for index in range(len(types))], types, field)
    if isinstance(kind, ListTypeInfo):
        return T.ArrayType(_data_type(kind.element, field))
    if isinstance(kind, MapTypeInfo):
        return T.MapType(_data_type(kind.key, field), _data_type(kind.value, field))
    if isinstance(kind, PrimitiveArray):
        return T.BinaryType() if kind.element.name == "BYTE" else T.ArrayType(_data_type(kind.element, field), containsNull=False)
    if kind.name in _SCALARS:
        return _SCALARS[kind.name]
    raise InvalidInputError(
        f"{kind!r} has no Spark equivalent", field=field, remedy="Declare the columns as DDL text, or emit another type"
    )


def _struct(names: list[str], types: list[TypeInformation], field: str) -> T.StructType:
    return T.StructType([T.StructField(name, _data_type(kind, field)) for name, kind in zip(names, types, strict=True)])
