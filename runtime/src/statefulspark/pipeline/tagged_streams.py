"""TaggedStream: the result of a keyed step with side outputs, and its schema in Spark's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from statefulspark.errors import InvalidInputError
from statefulspark.pipeline.output_types import OutputType, output_struct
from statefulspark.process.api.output_tag import MAIN, OutputTag
from statefulspark.process.output.side_outputs import SideOutput


@dataclass(frozen=True)
class TaggedStream:
    """The result of a keyed step with side outputs. Pass it to `Job.outputs`."""

    uid: str
    """The step."""
    df: DataFrame
    """A streaming DataFrame with a nullable struct column per output, of which exactly one is not null in each row."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs: ``main``, then the side outputs as declared."""
        return tuple(self.df.columns)


def spark_schema(tag: OutputTag) -> T.StructType:
    """The columns of a side output, in any of the forms that `OutputTag` takes.

    Raises:
        InvalidInputError: The tag's schema is none of them.
    """
    given = tag.schema
    if isinstance(given, Mapping):
        return from_arrow_schema(pa.schema(list(given.items())))
    if isinstance(given, pa.Schema):
        return from_arrow_schema(given)
    return output_struct(cast("OutputType", given), f"side output {tag.tag_id!r}")


def side_outputs_of(tags: Sequence[OutputTag], time_zone: str) -> tuple[SideOutput, ...]:
    """The declared side outputs as slots get them.

    Args:
        tags: What the user declares.
        time_zone: The session's, in which Spark hands timestamps to Python.

    Raises:
        InvalidInputError: One of them is no tag, or its schema cannot be read.
    """
    if isinstance(tags, OutputTag) or not tags:
        raise InvalidInputError(
            f"expected a non-empty list of OutputTags, got {type(tags).__name__}",
            field="side_outputs",
            remedy="Pass side_outputs=[tag], or leave it out",
        )
    for tag in tags:
        if not isinstance(tag, OutputTag):
            raise InvalidInputError(
                f"expected OutputTags, got {type(tag).__name__}", field="side_outputs", remedy="Pass side_outputs=[tag]"
            )
    return tuple(SideOutput(tag, to_arrow_schema(spark_schema(tag), timezone=time_zone)) for tag in tags)


def tagged_struct(main: T.StructType, tags: Sequence[OutputTag]) -> T.StructType:
    """The schema of a tagged stream: a nullable struct column per output."""
    named = [(MAIN, main), *((tag.tag_id, spark_schema(tag)) for tag in tags)]
    return T.StructType([T.StructField(name, schema) for name, schema in named])
