"""Cron lines of five fields: minute, hour, day of month, month, day of week."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from statefulspark.config.problems import refused
from statefulspark.errors import InvalidInputError

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _WEEKDAYS),
)
_ITEM = re.compile(r"(?P<any>\*)|(?P<first>[a-z0-9]+)(-(?P<last>[a-z0-9]+))?")
_REMEDY = "Write minute, hour, day of month, month and day of week, for example '0 3 * * *'"


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Moments at which something is due, in UTC.

    Attributes:
        minutes: 0 .. 59.
        hours: 0 .. 23.
        days: 1 .. 31.
        months: 1 .. 12.
        weekdays: 0 (Sunday) .. 6.
        both: True when days and weekdays must both match (one of them starts with ``*``); otherwise either is enough.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both: bool


def parse_cron(line: str) -> CronSchedule:
    """Return the schedule that ``line`` stands for.

    Args:
        line: Five fields of ``*``, numbers, names (``mon``, ``jan``), ranges, lists and steps: ``*/15 8-18 * * mon-fri``.

    Raises:
        InvalidInputError: A field is missing, misspelt or out of its bounds; the text names it.
    """
    texts = line.lower().split()
    if len(texts) != len(_FIELDS):
        raise InvalidInputError(f"has {len(texts)} fields instead of {len(_FIELDS)}", remedy=_REMEDY)
    minutes, hours, days, months, weekdays = (_field(text, *field) for text, field in zip(texts, _FIELDS, strict=True))
    return CronSchedule(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), "*" in {texts[2][0], texts[4][0]})


def _field(text: str, name: str, low: int, high: int, words: tuple[str, ...]) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        item, _, step_text = part.partition("/")
        match = _ITEM.fullmatch(item)
        step = _number(step_text, ()) if "/" in part else 1
        if match is None or not step:
            raise InvalidInputError(f"its {name} is misspelt", remedy=_REMEDY)
        first = low if match["any"] else _number(match["first"], words, low)
        last = high if match["any"] else _number(match["last"], words, low) if match["last"] else high if "/" in part else first
        if first is None or last is None or not low <= first <= last <= high:
            raise InvalidInputError(f"its {name} is not within {low} .. {high}", remedy=_REMEDY)
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _number(text: str, words: tuple[str, ...], first_word: int = 0) -> int | None:
    if text in words:
        return words.index(text) + first_word
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 2 else None


def _check(line: str) -> str:
    try:
        parse_cron(line)
    except InvalidInputError as error:
        raise refused(str(error).split(". ", maxsplit=1)[0], error.remedy or _REMEDY) from error
    return line


Cron = Annotated[str, StringConstraints(max_length=256, strip_whitespace=True), AfterValidator(_check)]
"""A cron line in a manifest, checked but kept as text."""
