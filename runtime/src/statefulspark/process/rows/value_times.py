"""Greatest event times by the values of some columns of an input, such as Kafka's partition: with ``watermark_by``, its watermark follows the smallest."""

from __future__ import annotations

import json
from typing import Final, TypeAlias

from statefulspark.errors import InvalidInputError

__all__ = ["NO_VALUES", "VALUES_MAX", "InputValueTimes", "ValueTimes", "columns_of_value", "named", "too_many_values", "value_of"]

ValueTimes: TypeAlias = dict[str, int]
"""Greatest event time in milliseconds by value: the JSON object of the columns, such as ``{"partition":3}``."""
InputValueTimes: TypeAlias = tuple[ValueTimes, ValueTimes]
"""Those of the first and of the second input; empty for an input without ``watermark_by``."""
NO_VALUES: Final[InputValueTimes] = ({}, {})
VALUES_MAX: Final = 1_024
"""Most values of an input in the life of a job: every batch record has them."""


def value_of(columns: tuple[str, ...], values: tuple[int | str | None, ...]) -> str:
    """Return the values of a row as one.

    >>> value_of(("topic", "partition"), ("orders", 3))
    '{"topic":"orders","partition":3}'
    """
    return json.dumps(dict(zip(columns, values, strict=True)), separators=(",", ":"))


def columns_of_value(value: str) -> tuple[str, ...]:
    """Return the columns that a value is of.

    >>> columns_of_value('{"topic":"orders","partition":3}')
    ('topic', 'partition')
    """
    return tuple(json.loads(value))


def too_many_values(columns: tuple[str, ...], uid: str | None = None) -> InvalidInputError:
    """Return the error of a step whose columns have more values than `VALUES_MAX`."""
    return InvalidInputError(
        f"{named(columns)} has had more than {VALUES_MAX:,} values",
        field="watermark_by" if uid is None else f"uid {uid!r}: watermark_by",
        remedy="Give columns with few values, such as Kafka's topic and partition, or leave watermark_by out",
    )


def named(columns: tuple[str, ...]) -> str:
    """Return the columns for a message."""
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(map(repr, columns))}"
