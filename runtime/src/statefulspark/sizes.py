"""Byte sizes as people write them: ``128Mi``, ``1 GiB``, ``512m``.

Spark's (``512m``), Flink's (``512 mb``) and Kubernetes's (``512Mi``) spellings are all read, and every unit is a power of 1024 as
Spark and Flink mean it: ``1g``, ``1 GB`` and ``1Gi`` are the same. A number without a unit is refused, because Spark reads it as
MiB in some places and as bytes in others. Inside the program a size is an int of bytes.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from statefulspark.errors import InvalidInputError

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_UNIT_NAMES = ("b", "Ki", "Mi", "Gi", "Ti", "Pi")
_TEXT = re.compile(r"(?P<number>\d{1,19}(?:\.\d{1,3})?)\s*(?P<unit>bytes|b|[kmgtp](?:i?b?))", re.IGNORECASE | re.ASCII)
_SIZE_MAX = 1 << 60
SIZE_REMEDY = "Write a number and a unit, for example 512Mi, 4Gi or 64k"
"""What to do about text that is no size."""


def parse_size(text: str) -> int:
    """Return the bytes that ``text`` stands for.

    Args:
        text: For example ``128Mi``, ``1 GiB``, ``512m``, ``1.5g``, ``100 bytes`` or ``0``; upper and lower case are the same.

    Returns:
        Bytes, 0 .. 2^60.

    Raises:
        InvalidInputError: There is no unit or an unknown one, or the size is not a whole number of bytes or above the limit.
    """
    stripped = text.strip()
    if stripped == "0":
        return 0
    match = _TEXT.fullmatch(stripped)
    if match is None:
        raise InvalidInputError("not a byte size", remedy=SIZE_REMEDY)
    unit = match["unit"].lower()
    power = 0 if unit in {"b", "bytes"} else _POWERS[unit[0]]
    size = Decimal(match["number"]) * 1024**power
    if size != int(size):
        raise InvalidInputError("not a whole number of bytes", remedy="Use a smaller unit")
    if size > _SIZE_MAX:
        raise InvalidInputError("exceeds the maximum size", remedy=SIZE_REMEDY)
    return int(size)


def format_size(size_bytes: int) -> str:
    """Return the shortest exact spelling with Kubernetes's units: ``134217728`` becomes ``128Mi``.

    Args:
        size_bytes: Bytes, at least 0.
    """
    power = 0
    while size_bytes and size_bytes % 1024 == 0 and power < len(_UNIT_NAMES) - 1:
        size_bytes //= 1024
        power += 1
    return f"{size_bytes}{_UNIT_NAMES[power]}" if size_bytes else "0"


def short_size(size_bytes: int, *, up: bool = False) -> str:
    """Return a size as people read it: exact for whole MiB, otherwise to a hundredth of a MiB, or of a KiB below one MiB.

    Args:
        size_bytes: Bytes, at least 0.
        up: Round up, for a size that is asked for.
    """
    shift, unit = (20, "Mi") if size_bytes >= 1 << 20 else (10, "Ki")
    if size_bytes % (1 << shift) == 0:
        return format_size(size_bytes)
    hundredths = (size_bytes * 100 + ((1 << shift) - 1 if up else 1 << (shift - 1))) >> shift
    return f"{hundredths // 100}.{hundredths % 100:02}".rstrip("0").rstrip(".") + unit
