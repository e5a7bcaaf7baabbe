"""Rows of a step with side outputs: the schema that carries them, and the buffers that collect them.

A row of the result has one nullable struct column per output, and exactly one of them is not null. A record batch has rows of one
output only, so the other columns cost a validity bitmap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.output_tag import MAIN, OutputTag, tag_of, undeclared
from statefulspark.process.output.buffer import OutputBuffer

__all__ = ["SideOutput", "TaggedOutputBuffer", "check_side_outputs", "tagged_schema", "untagged"]


@dataclass(frozen=True)
class SideOutput:
    """A declared side output; travels to the slots with its step."""

    tag: OutputTag
    schema: pa.Schema
    """The tag's schema, as Arrow's."""


def check_side_outputs(uid: str, outputs: Sequence[SideOutput]) -> None:
    """Raise unless the outputs of a step can be told apart and have columns.

    Raises:
        InvalidInputError: Names the step and the tag.
    """
    seen: dict[str, SideOutput] = {}
    for output in outputs:
        name = output.tag.tag_id
        if (other := seen.setdefault(name.lower(), output)) is not output:
            differ = "two tags" if other.schema.equals(output.schema) else "two tags with different schemas"
            names = (
                f"named {name!r}" if other.tag.tag_id == name else f"named {other.tag.tag_id!r} and {name!r}, which Spark cannot tell apart"
            )
            raise InvalidInputError(
                f"the step {uid!r} has {differ} {names}", field="side_outputs", remedy="Declare each output once, or rename one of them"
            )
        columns = output.schema.names
        if not columns or len(set(columns)) != len(columns):
            problem = "two columns of one name" if columns else "no columns"
            raise InvalidInputError(
                f"the side output {name!r} of the step {uid!r} has {problem}", field="side_outputs", remedy="Correct the schema of its tag"
            )


def tagged_schema(main: pa.Schema, outputs: Sequence[SideOutput]) -> pa.Schema:
    """Return the schema of the result of a step with side outputs: a nullable struct column per output, ``main`` first."""
    named = [(MAIN, main), *((output.tag.tag_id, output.schema) for output in outputs)]
    return pa.schema([pa.field(name, pa.struct(list(schema))) for name, schema in named])


def untagged(batch: pa.RecordBatch) -> tuple[str, pa.RecordBatch]:
    """Return the name of the output that the rows of a slot's record batch belong to, and the rows with the output's own columns."""
    name = next(name for name in batch.schema.names if not batch.column(name).null_count)
    return name, pa.RecordBatch.from_struct_array(batch.column(name))


class TaggedOutputBuffer:
    """Collects the rows of a step with side outputs; has the interface of `OutputBuffer`. Used by one thread.

    Args:
        uid: The step, for error messages.
        main: Schema of the rows without a tag.
        outputs: The declared side outputs.
        rows_max: Rows per record batch.
        bytes_max: Estimated bytes held in all; it is passed by at most one row per output.
    """

    __slots__ = ("_add_main", "_buffers", "_full", "_giver", "_main", "_names", "_schema", "_tags")

    def __init__(self, uid: str, main: pa.Schema, outputs: Sequence[SideOutput], *, rows_max: int, bytes_max: int) -> None:
        self._giver = giver = f"the step {uid!r}"
        self._schema = tagged_schema(main, outputs)
        self._names: list[str] = self._schema.names
        bytes_each = max(1, bytes_max // len(self._names))
        self._main = OutputBuffer(main, giver, rows_max=rows_max, bytes_max=bytes_each)
        self._add_main = self._main.add
        self._tags = {
            output.tag: OutputBuffer(
                output.schema, giver, rows_max=rows_max, bytes_max=bytes_each, field=f"side output {output.tag.tag_id!r}"
            )
            for output in outputs
        }
        self._buffers = [self._main, *self._tags.values()]
        self._full: OutputBuffer | None = None

    def __bool__(self) -> bool:
        return any(self._buffers)

    def add(self, row: Any) -> bool:
        """Take a row, or a tag with a row, and return whether `take` should be called now.

        Raises:
            InvalidInputError: The tag is not declared, or does not stand before exactly one row.
        """
        tag = tag_of(row)
        if tag is None:
            buffer, full = self._main, self._add_main(row)
        else:
            buffer = self._buffer_of(tag, row)
            full = buffer.add(row[1])
        if full:
            self._full = buffer
        return full

    def take(self) -> pa.RecordBatch:
        """Return the rows of the output that is full, or else of any output that has rows, and forget them.

        Raises:
            InvalidInputError: A row does not fit the schema of its output.
        """
        buffer = self._full if self._full is not None else next(filter(None, self._buffers), self._main)
        self._full = None
        rows = buffer.take()
        place = self._buffers.index(buffer)
        columns = [
            pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema)) if index == place else pa.nulls(rows.num_rows, field.type)
            for index, field in enumerate(self._schema)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def clear(self) -> None:
        """Forget the rows."""
        for buffer in self._buffers:
            buffer.clear()
        self._full = None

    def _buffer_of(self, tag: OutputTag, row: tuple[Any, ...]) -> OutputBuffer:
        if len(row) != 2:
            raise InvalidInputError(
                f"{self._giver} emitted a tag with {len(row) - 1} values",
                field=f"side output {tag.tag_id!r}",
                remedy="Yield the tag and one row: yield tag, (a, b)",
            )
        buffer = self._tags.get(tag)
        if buffer is not None:
            return buffer
        if tag.tag_id in self._names:
            raise InvalidInputError(
                f"{self._giver} emitted to a tag whose schema differs from that of the declared tag of this name",
                field=f"side output {tag.tag_id!r}",
                remedy="Create the tag once, and use it in side_outputs and in the function",
            )
        raise undeclared(self._giver, tag)
