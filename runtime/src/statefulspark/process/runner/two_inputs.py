"""TwoInputRunner: runs a function with two keyed inputs over one batch of one slot.

The rows of both inputs are united: each has a key hash, a source, and one of two structs. A slot adds the key and the event time of
whichever input the row is of, so that rows of both are sorted and split by key like those of one input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statefulspark.process.batches.functions import BatchKeyedProcessFunction
from statefulspark.process.batches.runner import BatchFunctionRunner
from statefulspark.process.rows.columns import max_event_time_ms, python_values
from statefulspark.process.rows.reserved_columns import EVENT_TIME, FIRST, SECOND, local_key_column
from statefulspark.process.rows.rows import InputRow, row_class, rows_of
from statefulspark.process.rows.step_spec import InputSpec, StepSpec
from statefulspark.process.runner.broadcast_input import BroadcastRunner
from statefulspark.process.runner.callbacks import Callback, callback
from statefulspark.process.runner.function_runner import KeyedFunctionRunner, later

__all__ = ["TwoInputRunner", "runner_class"]


def runner_class(step: StepSpec) -> type[KeyedFunctionRunner]:
    """Return the class that runs a step."""
    if isinstance(step.function, BatchKeyedProcessFunction):
        return BatchFunctionRunner
    if step.broadcast:
        return BroadcastRunner
    return KeyedFunctionRunner if step.second is None else TwoInputRunner


class TwoInputRunner(KeyedFunctionRunner):
    """A step with two inputs in one slot; used by one thread."""

    def __init__(self, step: StepSpec, *args: Any, **kwargs: Any) -> None:
        self._inputs = step.inputs
        super().__init__(step, *args, **kwargs)
        self._rows = [row_class(tuple(each.schema.names)) for each in step.inputs]

    @staticmethod
    def _order_columns(step: StepSpec) -> tuple[tuple[str, ...], str | None]:
        keys = tuple(map(local_key_column, range(len(step.key_columns))))
        return keys, EVENT_TIME if step.has_event_time else None

    def _arrived(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        structs = [rows.column(FIRST), rows.column(SECOND)]
        keys = [
            pc.coalesce(*(_field(struct, each, name) for struct, each, name in zip(structs, self._inputs, names, strict=True)))
            for names in zip(*(each.key_columns for each in self._inputs), strict=True)
        ]
        added = dict(zip(map(local_key_column, range(len(keys))), keys, strict=True))
        times = [
            None if each.event_time is None else _field(struct, each, each.event_time)
            for struct, each in zip(structs, self._inputs, strict=True)
        ]
        first, second = (None if each is None else max_event_time_ms(each) for each in times)
        self.max_event_time_ms = later(self.max_event_time_ms, first)
        self.second_max_event_time_ms = later(self.second_max_event_time_ms, second)
        for latest, struct, each, at in zip(self._by_value, structs, self._inputs, times, strict=True):
            if each.watermark_by and at is not None:
                latest.see([_field(struct, each, name) for name in each.watermark_by], at)
        known = [each for each in times if each is not None]
        if known:
            # An input without event time has none in any row, and so comes before the other.
            added[EVENT_TIME] = pc.coalesce(*known)
        return pa.RecordBatch.from_arrays([*rows.columns, *added.values()], names=[*rows.schema.names, *added])

    def _elements(self, chunk: pa.RecordBatch) -> tuple[Iterable[InputRow], Iterable[Callback]]:
        structs = [chunk.column(FIRST), chunk.column(SECOND)]
        first, second = (rows_of(row, _columns(struct)) for row, struct in zip(self._rows, structs, strict=True))
        first_method, second_method = callback(self.step, "process_element1"), callback(self.step, "process_element2")
        flags = structs[0].is_valid().to_numpy(zero_copy_only=False).tolist()
        return [next(first) if flag else next(second) for flag in flags], [first_method if flag else second_method for flag in flags]


def _field(struct: pa.StructArray, spec: InputSpec, name: str) -> pa.Array:
    """A column of one input, null in rows of the other."""
    # `StructArray.field` would ignore which structs are null.
    return pc.struct_field(struct, [spec.schema.names.index(name)])


def _columns(struct: pa.StructArray) -> list[list[Any]]:
    """The columns of the rows of one input, as Python values."""
    columns = struct.filter(struct.is_valid()).flatten()
    return [python_values(column, field.name) for column, field in zip(columns, struct.type, strict=True)]
