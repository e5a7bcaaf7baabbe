"""Durations as people write them: ``10s``, ``1 hour``, ``500ms``, ``1h30m``.

Flink's unit names are read, several parts may follow each other, and ``m`` is minutes. A number without a unit is refused:
Flink reads it as milliseconds, Spark mostly as seconds. Inside the program a duration is an int of milliseconds.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from statefulspark.config.base import Expected
from statefulspark.config.problems import refused
from statefulspark.errors import InvalidInputError

_UNITS_MS = {
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000,
    "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
}  # fmt: skip
_CANONICAL = ("d", "h", "m", "s", "ms")
_PART = re.compile(r"\s*(?P<number>\d{1,15})\s*(?P<unit>[a-z]+)", re.IGNORECASE | re.ASCII)
_DURATION_MS_MAX = 100 * 366 * 86_400_000
_REMEDY = "Write a number and a unit, for example 500ms, 10s, 5min, 1h30m or 1 day"
_PATTERN = rf"(?i)^\s*(0|([0-9]+\s*({'|'.join(sorted(_UNITS_MS))})\s*)+)\s*$"


def parse_duration(text: str) -> int:
    """Return the milliseconds that ``text`` stands for.

    Args:
        text: For example ``500ms``, ``10 s``, ``1 hour``, ``1h30m`` or ``0``; parts go from large to small, each unit once.

    Returns:
        Milliseconds, 0 .. 100 years.

    Raises:
        InvalidInputError: There is no unit or an unknown one, parts are out of order, or the duration is above the limit.
    """
    stripped = text.strip()
    if stripped == "0":
        return 0
    total, position, previous = 0, 0, _DURATION_MS_MAX
    while position < len(stripped):
        match = _PART.match(stripped, position)
        unit_ms = _UNITS_MS.get(match["unit"].lower()) if match else None
        if match is None or unit_ms is None:
            raise InvalidInputError("not a duration", remedy=_REMEDY)
        if unit_ms >= previous:
            raise InvalidInputError("write each unit of a duration once, from large to small", remedy=_REMEDY)
        total, position, previous = total + int(match["number"]) * unit_ms, match.end(), unit_ms
    if position == 0:
        raise InvalidInputError("not a duration", remedy=_REMEDY)
    if total > _DURATION_MS_MAX:
        raise InvalidInputError("longer than 100 years", remedy=_REMEDY)
    return total


def format_duration(duration_ms: int) -> str:
    """Return the canonical spelling: ``5400000`` becomes ``1h30m``.

    Args:
        duration_ms: Milliseconds, at least 0.
    """
    parts = []
    for unit in _CANONICAL:
        number, duration_ms = divmod(duration_ms, _UNITS_MS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def _from_manifest(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        if value == 0:
            return 0
        raise refused("a duration needs a unit", _REMEDY)
    if not isinstance(value, str):
        raise refused("not a duration", _REMEDY)
    try:
        return parse_duration(value)
    except InvalidInputError as error:
        raise refused(str(error).split(". ", maxsplit=1)[0], error.remedy or _REMEDY) from error


Duration = Annotated[
    int,
    BeforeValidator(_from_manifest),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": _PATTERN, "maxLength": 64, "minimum": 0, "maximum": 0}),
    Expected("a duration such as 30s or 1h30m"),
]
"""A duration in a manifest: text outside, milliseconds inside; the one number that needs no unit is 0."""


def at_least(shortest: str) -> AfterValidator:
    """Return the lower bound of a `Duration` field, inclusive, for use in ``Annotated``."""
    low = parse_duration(shortest)

    def check(duration_ms: int) -> int:
        if duration_ms < low:
            raise refused(f"{format_duration(duration_ms)} is shorter than {shortest}", f"Use at least {shortest}")
        return duration_ms

    return AfterValidator(check)
