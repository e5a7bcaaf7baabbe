"""OutputTag: names a side output and the schema of its rows. PyFlink's name and arguments, with columns in place of a type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.state.types.base import TypeInformation

__all__ = ["MAIN", "OutputTag", "SparkSchema", "TagSchema", "tag_of", "undeclared"]

MAIN: Final = "main"
"""Name of the output for rows that are yielded without a tag."""
_TAG_ID_MAX: Final = 200


class SparkSchema(Protocol):
    """The part of Spark's StructType that this package uses."""

    @property
    def fields(self) -> Any:
        """Its StructFields."""


TagSchema: TypeAlias = str | pa.Schema | Mapping[str, pa.DataType] | SparkSchema | TypeInformation


class OutputTag:
    """A side output of a keyed function: ``yield tag, row`` emits ``row`` there instead of to the main output.

    Declare tags with ``process(..., side_outputs=[tag])``. Two tags are equal if their names and their schemas are.

    >>> from statefulspark import OutputTag
    >>> late = OutputTag("late", "user STRING, at TIMESTAMP")
    >>> late
    OutputTag('late')

    Args:
        tag_id: Name of the output, 1 to 200 characters, not ``main``. Unique within a step, ignoring case.
        schema: Columns of the rows: DDL text, a StructType, a type of `Types`, an Arrow schema, or a dict of Arrow types.
            The test harnesses, which run without Spark, do not read types of `Types`.

    Raises:
        InvalidInputError: An argument is invalid; names it and the remedy.
    """

    __slots__ = ("schema", "tag_id")

    def __init__(self, tag_id: str, schema: TagSchema) -> None:
        if not isinstance(tag_id, str):
            raise InvalidInputError(
                f"expected a str, got {type(tag_id).__name__}", field="OutputTag", remedy="Give the name of the output as a str"
            )
        if not 1 <= len(tag_id) <= _TAG_ID_MAX:
            raise InvalidInputError(f"must have 1 to {_TAG_ID_MAX} characters", field="OutputTag", remedy="Give the output a short name")
        if tag_id.lower() == MAIN:
            raise InvalidInputError(f"{tag_id!r} is the name of the output without a tag", field="OutputTag", remedy="Choose another name")
        if schema is None or (isinstance(schema, str) and not schema.strip()):
            raise InvalidInputError(
                f"the side output {tag_id!r} has no schema", field="OutputTag", remedy="Name its columns: OutputTag(name, 'user STRING')"
            )
        self.tag_id = tag_id
        self.schema = schema

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, OutputTag) and self.tag_id == other.tag_id and bool(self.schema == other.schema)

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return OutputTag, (self.tag_id, self.schema)


def tag_of(row: Any) -> OutputTag | None:
    """Return the tag that a function has put before a row; None for a row of the main output."""
    return row[0] if row.__class__ is tuple and row and isinstance(row[0], OutputTag) else None


def undeclared(giver: str, tag: OutputTag) -> InvalidInputError:
    """Return the error for a tag that the step does not declare."""
    return InvalidInputError(
        f"{giver} emitted to the side output {tag.tag_id!r}, which it does not declare",
        field="side_outputs",
        remedy="Pass the tag to process(): side_outputs=[...]",
    )
