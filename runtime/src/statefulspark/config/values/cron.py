"""Cron lines of five fields: minute, hour, day of month, month, day of week, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, StringConstraints

from statefulspark.config.problems import refused
from statefulspark.errors import InvalidInputError

_FIELDS = 5
_REMEDY = "Write minute, hour, day of month, month and day of week, for example '0 3 * * *'"
_CHECKED_FROM = datetime(2024, 1, 1, tzinfo=UTC)


def next_time(line: str, after: datetime) -> datetime:
    """Return the first moment later than ``after`` at which ``line`` is due, in UTC.

    Args:
        line: Five fields of ``*``, numbers, names (``mon``, ``jan``), ranges, lists and steps: ``*/15 8-18 * * mon-fri``.
        after: A moment with a time zone.

    Raises:
        InvalidInputError: A field is missing or misspelt, or the line is never due; the text says which.
    """
    fields = len(line.split())
    # cronsim takes a sixth field, for seconds, which Kubernetes and Flink do not.
    if fields != _FIELDS:
        raise InvalidInputError(f"has {fields} fields instead of {_FIELDS}", remedy=_REMEDY)
    try:
        return next(CronSim(line, after.astimezone(UTC)))
    except CronSimError as error:
        raise InvalidInputError(f"is not a cron expression: {str(error).lower()}", remedy=_REMEDY) from error
    except StopIteration as error:
        raise InvalidInputError("never fires", remedy=_REMEDY) from error


def previous_time(line: str, before: datetime) -> datetime:
    """Return the last moment earlier than ``before`` at which ``line`` was due, in UTC.

    Args:
        line: A line that `next_time` accepts.
        before: A moment with a time zone.
    """
    return next(CronSim(line, before.astimezone(UTC), reverse=True))


def _check(line: str) -> str:
    try:
        next_time(line, _CHECKED_FROM)
    except InvalidInputError as error:
        raise refused(str(error).split(". ", maxsplit=1)[0], error.remedy or _REMEDY) from error
    return line


Cron = Annotated[str, StringConstraints(max_length=256, strip_whitespace=True), AfterValidator(_check)]
"""A cron line in a manifest, checked but kept as text."""
