"""Rows of one input or two, as the exchange of a step gets them; and how tests write a second input or a broadcast stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statefulspark.checkpoint.formats.pipeline import StepKey
from statefulspark.errors import InvalidInputError
from statefulspark.process.output.output import OutputSchema
from statefulspark.process.rows.reserved_columns import FIRST, KEY_HASH, PART, SECOND_SOURCES, SOURCE
from statefulspark.process.rows.reserved_columns import SECOND as SECOND_STRUCT
from statefulspark.process.rows.step_spec import InputSpec, StepSpec
from statefulspark.process.runner.broadcast_states import check_descriptors
from statefulspark.state.api.descriptors import MapStateDescriptor
from statefulspark.testing.key_hash import KeyHash
from statefulspark.testing.schemas import Schema, arrow_schema

__all__ = ["BROADCAST", "SECOND", "BroadcastInput", "ExchangeRows", "SecondInput"]


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
        watermark_by: Column, or several, of which each value has its own latest event time; the watermark follows the smallest of these.
    """

    schema: Schema
    key: str | Sequence[str]
    event_time: str | None = None
    watermark_ms: int = 0
    watermark_by: str | Sequence[str] = ()

    def spec(self) -> InputSpec:
        """Returns it as a step has it."""
        key = (self.key,) if isinstance(self.key, str) else tuple(self.key)
        by = (self.watermark_by,) if isinstance(self.watermark_by, str) else tuple(self.watermark_by)
        return InputSpec(arrow_schema(self.schema), key, self.event_time, self.watermark_ms, by)


@dataclass(frozen=True, slots=True)
class BROADCAST:
    """A row of the broadcast stream of a `TestingJob`, or of a `KeyedBroadcastProcessHarness`.

    Args:
        row: A tuple, ``Row`` or dict of the stream's schema.
    """

    row: Any


@dataclass(frozen=True, slots=True)
class BroadcastInput:
    """The broadcast stream of a `TestingJob`, or of a `KeyedBroadcastProcessHarness`.

    Args:
        schema: Its columns: an Arrow schema, a dict of Arrow types, DDL text or a StructType.
        *descriptors: The broadcast states that its rows may change; at least one.
        event_time: The event-time column; None if the stream has no event time.
        watermark_ms: How far its watermark stays behind its latest event time, in milliseconds.
    """

    schema: Schema
    descriptors: tuple[MapStateDescriptor, ...]
    event_time: str | None
    watermark_ms: int

    def __init__(self, schema: Schema, *descriptors: MapStateDescriptor, event_time: str | None = None, watermark_ms: int = 0) -> None:
        check_descriptors(descriptors)
        values = {"schema": schema, "descriptors": descriptors, "event_time": event_time, "watermark_ms": watermark_ms}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def spec(self) -> InputSpec:
        """Returns it as a step has it."""
        return InputSpec(arrow_schema(self.schema), (), self.event_time, self.watermark_ms)


class ExchangeRows:
    """Makes what an exchange gets of the rows of a test; those of the second input are given as `SECOND`, or as `BROADCAST`."""

    def __init__(self, step: StepSpec, stored_key: StepKey | None = None) -> None:
        self._two = step.second is not None
        self._broadcast = bool(step.broadcast)
        self._schemas = [OutputSchema(each.schema, "the test", field="input_schema") for each in step.inputs]
        self._hashes = [KeyHash(each, stored_key) for each in step.inputs if each.key_columns]
        fields = [list(each.schema) for each in step.inputs]
        if self._broadcast:
            fields[1].insert(0, pa.field(PART, pa.int32()))
        self._kinds = list(map(pa.struct, fields)) if self._two else step.input_schema.types
        self._names = [KEY_HASH, SOURCE, *((FIRST, SECOND_STRUCT) if self._two else step.input_schema.names)]

    def hashes(self, rows: Sequence[Any]) -> list[int | None]:
        """Returns the hash of the key of each row, None for a row of the broadcast stream."""
        hashes: list[int | None] = self.batch(rows).column(KEY_HASH).to_pylist()
        return hashes

    def hash_of_key(self, key: Any) -> int:
        """Returns the hash of a key, a tuple for several key columns."""
        return self._hashes[0].of_key(key)

    def batch(self, rows: Sequence[Any], slot: int = 0) -> pa.RecordBatch:
        """Returns the rows as Spark's shuffle hands them to an exchange.

        Args:
            rows: The rows.
            slot: The slot that they go to; in rows of the broadcast stream it is a column.

        Raises:
            InvalidInputError: A row does not fit the schema of its input, or there is no such input.
        """
        self._check_inputs(rows)
        if not self._two:
            batch = self._schemas[0].batch(rows)
            return self._made(self._hashes[0].of(batch), [0] * len(rows), batch.columns)
        of_second = [isinstance(row, SECOND | BROADCAST) for row in rows]
        values = [row.row if isinstance(row, SECOND | BROADCAST) else row for row in rows]
        columns: list[pa.Array] = []
        hashes: list[int | None] = [None] * len(rows)
        for number, schema in enumerate(self._schemas):
            places = [place for place, second in enumerate(of_second) if second == bool(number)]
            batch = schema.batch([values[place] for place in places])
            arrays = batch.columns
            if number and self._broadcast:
                arrays = [pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows), *arrays]
            else:
                for place, key_hash in zip(places, self._hashes[number].of(batch), strict=True):
                    hashes[place] = key_hash
            structs = pa.StructArray.from_arrays(arrays, fields=list(self._kinds[number]))
            where = {place: index for index, place in enumerate(places)}
            columns.append(structs.take(pa.array([where.get(place) for place in range(len(rows))], pa.int64())))
        second_source = slot if self._broadcast else SECOND_SOURCES
        return self._made(hashes, [second_source if second else 0 for second in of_second], columns)

    def _check_inputs(self, rows: Sequence[Any]) -> None:
        kinds: tuple[tuple[type, str, bool], ...] = (
            (SECOND, "second=SecondInput(...)", self._two and not self._broadcast),
            (BROADCAST, "broadcast=BroadcastInput(...)", self._broadcast),
        )
        for kind, argument, given in kinds:
            if not given and any(isinstance(row, kind) for row in rows):
                raise InvalidInputError(
                    f"the step has {'no such input' if self._two else 'one input'}",
                    field=kind.__name__,
                    remedy=f"Pass {argument}, or leave {kind.__name__} out",
                )

    def tick(self, slot: int) -> pa.RecordBatch:
        """Returns the row of the tick source, which has no data and makes the slot run the batch."""
        columns = [pa.nulls(1, pa.int64()), pa.array([slot], pa.int32()), *(pa.nulls(1, kind) for kind in self._kinds)]
        return pa.RecordBatch.from_arrays(columns, names=self._names)

    def _made(self, hashes: Sequence[int | None], sources: list[int], columns: Sequence[pa.Array]) -> pa.RecordBatch:
        exchange = [pa.array(hashes, pa.int64()), pa.array(sources, pa.int32())]
        return pa.RecordBatch.from_arrays([*exchange, *columns], names=self._names)
