"""RunningAggregates: the batch function behind ``KeyedStream.aggregate``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.process.batches.aggregates import Aggregate
from statefulspark.process.batches.functions import BatchKeyedProcessFunction, BatchValueState, Produced
from statefulspark.process.batches.kernels import Groups, SumOverflowError, best, picked, sum_of
from statefulspark.process.batches.states import KeyedBatchContext, without_arrow
from statefulspark.process.rows.row_types import type_info
from statefulspark.state.api.descriptors import ValueStateDescriptor
from statefulspark.state.api.names import RuntimeName

__all__ = ["RunningAggregates", "output_field"]

_DECIMAL_DIGITS_MAX: Final = 38
_SUM_DIGITS: Final = 10
"""Digits that a sum of decimals has more than they, as in Spark."""
_STATE_NAME_BYTES_MAX: Final = 255
_LEAST: Final = {"min_": True, "max_": False, "min_by": True, "max_by": False}


class RunningAggregates(BatchKeyedProcessFunction):
    """Emits one row per key and batch: the key's columns, then the aggregates of all rows of the key so far.

    Each aggregate keeps what it needs in value states named after its function and columns, so that renaming an output column keeps the state.

    Args:
        aggregates: By output column.
        schema: The columns of the stream.
        key_columns: The key's.

    Attributes:
        output_schema: The columns that it emits.

    Raises:
        InvalidInputError: A column does not exist, or its type does not fit; names the output column.
    """

    def __init__(self, aggregates: Mapping[str, Aggregate], schema: pa.Schema, key_columns: Sequence[str]) -> None:
        if not aggregates:
            raise InvalidInputError("there is no aggregate", field="aggregate", remedy="Name at least one: aggregate(uid=..., n=count())")
        self._aggregates = dict(aggregates)
        self._schema = schema
        keys = [schema.field(name) for name in key_columns]
        self.output_schema = pa.schema([*keys, *(output_field(name, each, schema) for name, each in aggregates.items())])
        names = [name.lower() for name in self.output_schema.names]
        for name in aggregates:
            if names.count(name.lower()) > 1:
                raise InvalidInputError("the output has another column of this name", field=name, remedy="Name the aggregate otherwise")

    def open(self, runtime_context: Any) -> None:
        """Take the states, of equal aggregates once."""
        self._uid = runtime_context.get_task_name()
        self._running = {each: _Running(name, each, self._schema, runtime_context) for name, each in self._aggregates.items()}

    def process_batch(self, keys: pa.Array, batch: pa.RecordBatch, ctx: BatchKeyedProcessFunction.Context) -> Produced:
        groups = Groups(ctx.offsets())
        results = {each: running.advanced(batch, groups) for each, running in self._running.items()}
        columns = keys.flatten() if pt.is_struct(keys.type) else [keys]
        return pa.RecordBatch.from_arrays(
            [*columns, *(results[each] for each in self._aggregates.values())], names=self.output_schema.names
        )


def output_field(name: str, aggregate: Any, schema: pa.Schema) -> pa.Field:
    """Return the output column of an aggregate, with the type that Spark's function of the kind has.

    Raises:
        InvalidInputError: As for `RunningAggregates`.
    """
    if not isinstance(aggregate, Aggregate):
        remedy = "Use the functions of statefulspark: count, sum_, min_, max_, last, min_by, max_by"
        raise InvalidInputError(f"expected an aggregate, got {type_name(type(aggregate))}", field=name, remedy=remedy)
    kinds = [_kind(name, column, schema) for column in aggregate.columns]
    if aggregate.kind == "count":
        return pa.field(name, pa.int64(), nullable=False)
    if aggregate.kind == "sum_":
        return pa.field(name, _sum_kind(name, aggregate.columns[0], kinds[0]))
    if aggregate.kind in _LEAST and pt.is_nested(kinds[-1]):
        raise InvalidInputError(
            f"values of column {aggregate.columns[-1]!r} of type {kinds[-1]} have no order", field=name, remedy="Name another column"
        )
    for column, kind in zip(aggregate.columns, kinds, strict=True):
        if without_arrow(type_info(kind).to_json()) is not None:
            raise InvalidInputError(
                f"column {column!r} of type {kind} cannot be kept in state", field=name, remedy="Cast the column, for example to a bigint"
            )
    return pa.field(name, kinds[0])


def _kind(name: str, column: str, schema: pa.Schema) -> pa.DataType:
    if schema.names.count(column) != 1:
        problem = "occurs more than once" if column in schema.names else "does not exist"
        raise InvalidInputError(
            f"column {column!r} {problem}; the columns are {', '.join(schema.names)}", field=name, remedy="Correct the name"
        )
    return schema.field(column).type


def _sum_kind(name: str, column: str, kind: pa.DataType) -> pa.DataType:
    if pt.is_integer(kind):
        return pa.int64()
    if pt.is_floating(kind):
        return pa.float64()
    if pt.is_decimal(kind):
        return pa.decimal128(min(_DECIMAL_DIGITS_MAX, kind.precision + _SUM_DIGITS), kind.scale)
    raise InvalidInputError(f"column {column!r} of type {kind} has no sum", field=name, remedy="Name a column of numbers, or cast it")


class _Running:
    """One aggregate and its states in a slot."""

    def __init__(self, name: str, aggregate: Aggregate, schema: pa.Schema, context: KeyedBatchContext) -> None:
        self._name = name
        self._aggregate = aggregate
        self._uid = context.get_task_name()
        self._kind = output_field(name, aggregate, schema).type
        self._state = self._state_of(context, "", self._kind)
        # Of max_by and min_by: the value by which the kept one was chosen.
        self._by = self._state_of(context, ".by", schema.field(aggregate.columns[1]).type) if len(aggregate.columns) > 1 else None

    def advanced(self, batch: pa.RecordBatch, groups: Groups) -> pa.Array:
        """Add the rows of a call, and return the aggregate of each key."""
        result = self._result([batch.column(column) for column in self._aggregate.columns], groups)
        self._state.put_batch(result)
        return result

    def _result(self, columns: list[pa.Array], groups: Groups) -> pa.Array:
        match self._aggregate.kind:
            case "count":
                given = columns[0].is_valid().cast(pa.int64()) if columns else pa.array(np.ones(int(groups.offsets[-1]), np.int64))
                return sum_of(groups, _united(self._state, given, self._kind))
            case "sum_":
                try:
                    return sum_of(groups, _united(self._state, columns[0], self._kind))
                except SumOverflowError:
                    raise InvalidInputError(
                        f"the sum of column {self._aggregate.columns[0]!r} of a key does not fit {self._kind}",
                        field=f"uid {self._uid!r}: {self._name}",
                        remedy="Cast the column to a wider type, for example DECIMAL(38, 0)",
                    ) from None
            case "last":
                return columns[0].take(pa.array(groups.offsets[1:] - 1))
            case "min_" | "max_" as kind:
                united = _united(self._state, columns[0], self._kind)
                return picked(united, best(groups, united, least=_LEAST[kind]))
            case kind:
                return self._chosen(columns, groups, least=_LEAST[kind])

    def _chosen(self, columns: list[pa.Array], groups: Groups, *, least: bool) -> pa.Array:
        assert self._by is not None  # noqa: S101  min_by and max_by have it
        by = _united(self._by, columns[1], columns[1].type)
        positions = best(groups, by, least=least)
        self._by.put_batch(picked(by, positions))
        return picked(_united(self._state, columns[0], self._kind), positions)

    def _state_of(self, context: KeyedBatchContext, part: str, kind: pa.DataType) -> BatchValueState:
        name = RuntimeName(f"_aggregate.{self._aggregate.kind}{json.dumps(self._aggregate.columns, ensure_ascii=False)}{part}")
        if len(name.encode()) > _STATE_NAME_BYTES_MAX:
            raise InvalidInputError("the column's name is too long for a state's name", field=self._name, remedy="Rename the column")
        return context.state_of(ValueStateDescriptor(name, type_info(kind)), kind)


def _united(state: BatchValueState, column: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays([state.get_batch(), column.cast(kind)])
