"""Rows of one input or two, as the exchange of a step gets them; and how tests write a second input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.process.output import OutputSchema
from statefulspark.process.reserved_columns import FIRST, KEY_HASH, SECOND_SOURCES, SOURCE
from statefulspark.process.reserved_columns import SECOND as SECOND_STRUCT
from statefulspark.process.step_spec import InputSpec, StepSpec
from statefulspark.testing.key_hash import KeyHash
from statefulspark.testing.schemas import Schema, arrow_schema

__all__ = ["SECOND", "ExchangeRows", "SecondInput"]


@dataclass(frozen=True, slots=True)
class SECOND:
    """A row of the second input of a `TestingJob`.

    Args:
        row: A tuple, ``Row`` or dict of the second input's schema.
    """

    row: Any


@dataclass(frozen=True, slots=True)
class SecondInput:
    """The second input of a `TestingJob`, or of a `KeyedTwoInputProcessHarness`.

    Args:
        schema: Its columns: an Arrow schema, a dict of Arrow types, DDL text or a StructType.
        key: The key column, or several, of the same types as those of the first input.
        event_time: The event-time column; None if the input has no event time.
        watermark_ms: How far its watermark stays behind its latest event time, in milliseconds.
    """

    schema: Schema
    key: str | Sequence[str]
    event_time: str | None = None
    watermark_ms: int = 0

    def spec(self) -> InputSpec:
        """Returns it as a step has it."""
        key = (self.key,) if isinstance(self.key, str) else tuple(self.key)
        return InputSpec(arrow_schema(self.schema), key, self.event_time, self.watermark_ms)


class ExchangeRows:
    """Makes what an exchange gets of the rows of a test; those of the second input are given as `SECOND`."""

    def __init__(self, step: StepSpec) -> None:
        self._two = step.second is not None
        self._schemas = [OutputSchema(each.schema, "the test", field="input_schema") for each in step.inputs]
        self._hashes = [KeyHash(each) for each in step.inputs]
        self._kinds = [pa.struct(list(each.schema)) for each in step.inputs] if self._two else step.input_schema.types
        self._names = [KEY_HASH, SOURCE, *((FIRST, SECOND_STRUCT) if self._two else step.input_schema.names)]

    def hashes(self, rows: Sequence[Any]) -> list[int]:
        """Returns the hash of the key of each row."""
        columns = self.batch(rows).column(KEY_HASH)
        return [int(each) for each in columns.to_pylist()]

    def hash_of_key(self, key: Any) -> int:
        """Returns the hash of a key, a tuple for several key columns."""
        return self._hashes[0].of_key(key)

    def batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Returns the rows as Spark's shuffle hands them to an exchange.

        Raises:
            InvalidInputError: A row does not fit the schema of its input, or there is no second input.
        """
        if not self._two:
            if any(isinstance(row, SECOND) for row in rows):
                raise InvalidInputError(
                    "the step has one input", field="SECOND", remedy="Pass second=SecondInput(...), or leave SECOND out"
                )
            batch = self._schemas[0].batch(rows)
            return self._made(self._hashes[0].of(batch), [0] * len(rows), batch.columns)
        of_second = [isinstance(row, SECOND) for row in rows]
        values = [row.row if isinstance(row, SECOND) else row for row in rows]
        columns, hashes = [], [0] * len(rows)
        for number, schema in enumerate(self._schemas):
            places = [place for place, second in enumerate(of_second) if second == bool(number)]
            batch = schema.batch([values[place] for place in places])
            for place, key_hash in zip(places, self._hashes[number].of(batch), strict=True):
                hashes[place] = key_hash
            structs = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            where = {place: index for index, place in enumerate(places)}
            columns.append(structs.take(pa.array([where.get(place) for place in range(len(rows))], pa.int64())))
        return self._made(hashes, [SECOND_SOURCES if second else 0 for second in of_second], columns)

    def tick(self, slot: int) -> pa.RecordBatch:
        """Returns the row of the tick source, which has no data and makes the slot run the batch."""
        columns = [pa.nulls(1, pa.int64()), pa.array([slot], pa.int32()), *(pa.nulls(1, kind) for kind in self._kinds)]
        return pa.RecordBatch.from_arrays(columns, names=self._names)

    def _made(self, hashes: list[int], sources: list[int], columns: Sequence[pa.Array]) -> pa.RecordBatch:
        exchange = [pa.array(hashes, pa.int64()), pa.array(sources, pa.int32())]
        return pa.RecordBatch.from_arrays([*exchange, *columns], names=self._names)
