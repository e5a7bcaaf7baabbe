"""LatestByValue: measures the greatest event times of an input by value of ``watermark_by``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from statefulspark.errors import InvalidInputError
from statefulspark.process.rows.columns import event_time_ms, python_values
from statefulspark.process.rows.value_times import VALUES_MAX, ValueTimes, named, too_many_values, value_of

__all__ = ["LatestByValue", "check_value_columns"]

_VALUE_CHARS_MAX: Final = 512


class LatestByValue:
    """Measures the rows of one input in one batch.

    >>> latest = LatestByValue(("partition",))
    >>> latest.see([pa.array([0, 1, 0])], pa.array([10, 20, 30]))
    >>> latest.times
    {'{"partition":0}': 30, '{"partition":1}': 20}
    """

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self.times: ValueTimes = {}

    def see(self, values: Sequence[pa.Array], times: pa.Array) -> None:
        """Take in rows; those without an event time do not count.

        Args:
            values: The columns of ``watermark_by``.
            times: The column with event times.

        Raises:
            InvalidInputError: There are too many values, or one is too long.
        """
        names = [str(place) for place in range(len(values))]
        table = pa.Table.from_arrays([*values, times], names=[*names, "at"])
        grouped = table.group_by(names, use_threads=False).aggregate([("at", "max")]).combine_chunks().to_batches()
        for group in grouped:
            columns = [python_values(group.column(name), column) for name, column in zip(names, self._columns, strict=True)]
            for value, latest in zip(zip(*columns, strict=True), event_time_ms(group.column("at_max")), strict=True):
                if latest is not None:
                    self._add(value_of(self._columns, value), latest)

    def _add(self, value: str, latest_ms: int) -> None:
        if len(value) > _VALUE_CHARS_MAX:
            raise InvalidInputError(
                f"a value of {named(self._columns)} has more than {_VALUE_CHARS_MAX} characters as JSON",
                field="watermark_by",
                remedy="Give columns with short values, such as Kafka's partition",
            )
        self.times[value] = max(latest_ms, self.times.get(value, latest_ms))
        if len(self.times) > VALUES_MAX:
            raise too_many_values(self._columns)


def check_value_columns(schema: pa.Schema, columns: tuple[str, ...], *, has_event_time: bool, has_watermark: bool) -> None:
    """Check the argument ``watermark_by`` of an input.

    Args:
        schema: The input's columns.
        columns: The argument.
        has_event_time: True if the input has event time.
        has_watermark: True if the input has a watermark of its own.

    Raises:
        InvalidInputError: It does not fit; names the remedy.
    """
    field = "watermark_by"
    if len(set(columns)) != len(columns):
        raise InvalidInputError("names a column twice", field=field, remedy="Name it once")
    for name in columns:
        if schema.names.count(name) != 1:
            found = "occurs more than once" if name in schema.names else "does not exist"
            raise InvalidInputError(f"column {name!r} {found}", field=field, remedy=f"The input has: {', '.join(schema.names)}")
        kind = schema.field(name).type
        if not (pt.is_integer(kind) or pt.is_string(kind) or pt.is_large_string(kind)):
            raise InvalidInputError(f"column {name!r} is {kind}", field=field, remedy="Cast it to int, bigint or string")
    if columns and not has_event_time:
        raise InvalidInputError(
            "needs event time: the input has no watermark", field=field, remedy="Give event_time, or leave watermark_by out"
        )
    if columns and not has_watermark:
        raise InvalidInputError(
            "the input has the watermark of the steps before it", field=field, remedy="Give watermark too, or leave watermark_by out"
        )
