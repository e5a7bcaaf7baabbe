"""WindowedStream: a keyed stream cut into windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from statefulspark.errors import InvalidInputError
from statefulspark.pipeline.column_names import quoted
from statefulspark.pipeline.output_types import output_struct
from statefulspark.pipeline.tagged_streams import TaggedStream, spark_schema
from statefulspark.process.api.output_tag import MAIN
from statefulspark.process.windows.assigners import WindowAssigner
from statefulspark.process.windows.late_rows import LateRow
from statefulspark.process.windows.window_operator import WindowOperator
from statefulspark.process.windows.windowed_transformations import StepTimes, WindowedTransformations

__all__ = ["KeyedInput", "WindowedStream"]

Stream: TypeAlias = DataFrame | TaggedStream


@dataclass(frozen=True)
class KeyedInput:
    """What a windowed stream needs of its keyed stream."""

    process: Callable[..., Stream]
    """`KeyedStream.process`."""
    add_tagged_stream: Callable[[TaggedStream], None]
    """`Job.add_tagged_stream`."""
    schema: T.StructType
    """The columns of the stream, with those that key selectors computed."""
    columns: pa.Schema
    """The same as slots get them."""
    computed_keys: tuple[str, ...]
    """Columns that key selectors computed."""

    @property
    def visible(self) -> list[T.StructField]:
        """The columns without those that key selectors computed."""
        return [field for field in self.schema.fields if field.name not in self.computed_keys]


class WindowedStream(WindowedTransformations[Stream]):
    """A keyed stream cut into windows; made by ``KeyedStream.window``. The result of its steps is a DataFrame, with tags a TaggedStream."""

    def __init__(self, keyed_input: KeyedInput, window_assigner: WindowAssigner) -> None:
        super().__init__(window_assigner)
        self._input = keyed_input

    def _columns(self) -> pa.Schema:
        return self._input.columns

    def _late_row(self) -> Callable[[Any], Any]:
        hidden = self._input.computed_keys
        return LateRow(tuple(index for index, name in enumerate(self._input.schema.names) if name not in hidden))

    def _made(self, operator: WindowOperator, output_type: Any, times: StepTimes) -> Stream:
        self._check_late_tag()
        whole_rows = output_type is None
        made = self._input.process(
            operator,
            self._input.schema if whole_rows else output_struct(output_type, "output_type"),
            uid=times.uid,
            event_time=times.event_time,
            watermark=times.watermark,
            watermark_by=times.watermark_by,
            idle_after=times.idle_after,
            side_outputs=times.side_outputs,
        )
        return self._without_computed_keys(made) if whole_rows else made

    def _without_computed_keys(self, made: Stream) -> Stream:
        hidden = self._input.computed_keys
        if isinstance(made, DataFrame):
            return made.drop(*hidden)
        if not hidden:
            return made
        # The struct stays null where a row belongs to a side output.
        without = TaggedStream(made.uid, made.df.withColumn(MAIN, made.df[MAIN].dropFields(*map(quoted, hidden))))
        self._input.add_tagged_stream(without)
        return without

    def _check_late_tag(self) -> None:
        tag = self._windowing.late_tag
        if tag is None:
            return
        # By text, which leaves out whether elements may be null.
        wanted = [f"{field.name} {field.dataType.simpleString()}" for field in self._input.visible]
        if [f"{field.name} {field.dataType.simpleString()}" for field in spark_schema(tag)] != wanted:
            raise InvalidInputError(
                f"the columns of the tag {tag.tag_id!r} are not those of the stream",
                field="side_output_late_data",
                remedy=f"Give the tag the stream's columns: {', '.join(wanted)}",
            )
