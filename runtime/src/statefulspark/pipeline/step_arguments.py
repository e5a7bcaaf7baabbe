"""Checks of the arguments of keyed steps, which name the argument and the remedy before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pyarrow as pa
import structlog
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema

from statefulspark.config.values.durations import parse_duration
from statefulspark.errors import InvalidInputError

__all__ = ["arrow_input", "check_column", "check_event_time", "idle_ms", "value_columns", "warn_without_watermark", "watermark_delay_ms"]

_log = structlog.get_logger("statefulspark.pipeline")

_EVENT_TIMES = (T.TimestampType, T.TimestampNTZType)


def watermark_delay_ms(watermark: str | int, field: str = "watermark") -> int:
    """The delay in milliseconds.

    Args:
        watermark: a duration such as ``1 hour``, or milliseconds.
        field: name of the argument.

    Raises:
        InvalidInputError: it is no duration.
    """
    remedy = "Give a duration such as '1 hour', or milliseconds"
    if isinstance(watermark, bool) or not isinstance(watermark, str | int):
        raise InvalidInputError(f"expected a str or an int, got {type(watermark).__name__}", field=field, remedy=remedy)
    if isinstance(watermark, str):
        try:
            return parse_duration(watermark)
        except InvalidInputError as error:
            raise InvalidInputError(f"{watermark!r} is {error.message}", field=field, remedy=remedy) from error
    if watermark < 0:
        raise InvalidInputError("must not be negative", field=field, remedy=remedy)
    return watermark


def idle_ms(idle_after: str | int | None, *, has_event_time: bool) -> int | None:
    """The time without rows, in milliseconds, after which an input is idle.

    Args:
        idle_after: As `watermark_delay_ms` takes it; None if no input becomes idle.
        has_event_time: Whether the step has event time.

    Raises:
        InvalidInputError: It is no duration, it is 0, or the step has no watermark.
    """
    if idle_after is None:
        return None
    if not has_event_time:
        raise InvalidInputError(
            "needs event time: the step has no watermark", field="idle_after", remedy="Give event_time, or leave idle_after out"
        )
    found = watermark_delay_ms(idle_after, "idle_after")
    if not found:
        raise InvalidInputError(
            "must not be 0", field="idle_after", remedy="Give the longest time without rows that is normal, such as '1 minute'"
        )
    return found


def value_columns(watermark_by: str | Sequence[str] | None, field: str = "watermark_by") -> tuple[str, ...]:
    """Return the columns by whose values event times are known; empty for None.

    Args:
        watermark_by: A name, or several.
        field: Name of the argument.

    Raises:
        InvalidInputError: It is neither.
    """
    columns: object = (watermark_by,) if isinstance(watermark_by, str) else () if watermark_by is None else watermark_by
    if not isinstance(columns, Sequence) or not all(isinstance(each, str) for each in columns):
        raise InvalidInputError("is not the name of a column", field=field, remedy="Give a name, or a list of names: 'partition'")
    return tuple(columns)


def warn_without_watermark(uid: str, watermark: str | int, field: str = "watermark") -> None:
    """Log, once per step and process, that an input with event time has no ``watermark`` argument, whose default is 0.

    Text such as ``"0 seconds"`` says that the delay is meant to be 0.
    """
    if watermark == 0:
        _log_without_watermark(uid, field)


@cache  # a pipeline is built several times in the life of a job
def _log_without_watermark(uid: str, field: str) -> None:
    _log.warning(
        f"uid {uid!r} has event time and no {field}: a row that is older than a row of an earlier batch is late. "
        f"Set {field}='5 minutes' to wait for such rows, or {field}='0 seconds' if rows arrive in order"
    )


def arrow_input(df: DataFrame, time_zone: str, field: str = "key_by") -> pa.Schema:
    """The columns of a step's input as slots get them.

    Args:
        df: The stream.
        time_zone: The session's, in which Spark hands timestamps to Python.
        field: Where the stream was given, for error messages.

    Raises:
        InvalidInputError: A column cannot be sent to Python; names it and the remedy.
    """
    for each in df.schema.fields:
        try:
            to_arrow_schema(T.StructType([each]), timezone=time_zone)
        except (PySparkException, ValueError) as error:
            raise InvalidInputError(
                f"column {each.name!r} of type {each.dataType.simpleString()} cannot be sent to Python",
                field=field,
                remedy="Cast or drop it; an empty array() has no type of elements: array().cast('array<string>')",
            ) from error
    return to_arrow_schema(df.schema, timezone=time_zone)


def check_event_time(df: DataFrame, name: str, field: str = "event_time") -> None:
    """Raise unless the stream has a column ``name`` that is a timestamp.

    Raises:
        InvalidInputError: names the argument ``field`` and the remedy.
    """
    check_column(df, name, field)
    kind = df.schema[name].dataType
    if not isinstance(kind, _EVENT_TIMES):
        raise InvalidInputError(
            f"column {name!r} is {kind.simpleString()}, not a timestamp", field=field, remedy=f"Cast it: to_timestamp({name})"
        )


def check_column(df: DataFrame, name: str, field: str) -> None:
    """Raise unless the stream has a column ``name``.

    Raises:
        InvalidInputError: names the argument ``field`` and the columns.
    """
    if name not in df.columns:
        raise InvalidInputError(
            f"column {name!r} does not exist; the columns are {', '.join(df.columns)}", field=field, remedy="Correct the name"
        )
