"""Scalar types: numbers, text, times.

Numbers are fixed-width and big-endian. Text and decimals are UTF-8 or ASCII without a length prefix, because the container of a payload
stores its length.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from operator import index
from sys import getsizeof
from typing import Any, Final

from statefulspark.errors import InvalidInputError
from statefulspark.state.times import Instant
from statefulspark.state.types.base import TypeInformation, readable, wrong_value

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # SQL timestamps have no zone
_MICROSECOND: Final = timedelta(microseconds=1)
_MICROS_PER_DAY: Final = 86_400_000_000
_INSTANT: Final = struct.Struct(">qI")


class FixedWidthInteger(TypeInformation):
    """A signed integer of 1, 2, 4 or 8 bytes. ``bool`` is refused, other integer-like values (numpy's) become ``int``."""

    def __init__(self, name: str, size_bytes: int, struct_format: str) -> None:
        self.name = name
        self.struct_format = struct_format
        self._size_bytes = size_bytes
        self._max = (1 << (8 * size_bytes - 1)) - 1
        # Every int is accepted as a LONG without a check: one that is too wide, which is rare, is rejected when it is encoded. For the
        # narrow types being too wide is a likely mistake, so they are checked at once.
        self.accepted_class = int if size_bytes == 8 else None

    def normalize(self, value: Any) -> int:
        if isinstance(value, bool):
            raise wrong_value(self, "int", value)
        try:
            number = index(value)
        except TypeError:
            raise wrong_value(self, "int", value) from None
        if not ~self._max <= number <= self._max:
            raise InvalidInputError(f"the number does not fit the {self._size_bytes} byte(s) of {self!r}", remedy="Declare a wider type.")
        return number

    def encode(self, value: Any) -> bytes:
        return self.normalize(value).to_bytes(self._size_bytes, "big", signed=True)

    def decode(self, data: bytes) -> int:
        _check_length(data, self._size_bytes)
        return int.from_bytes(data, "big", signed=True)


class BigInteger(TypeInformation):
    """An integer of any size: two's complement in as few bytes as it takes."""

    name = "BIG_INT"
    accepted_class = int
    decoded_bytes = None

    def normalize(self, value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise wrong_value(self, "int", value)
        return index(value)

    def encode(self, value: Any) -> bytes:
        number = self.normalize(value)
        return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)

    def decode(self, data: bytes) -> int:
        if not data:
            raise ValueError("at least one byte expected")
        return int.from_bytes(data, "big", signed=True)

    def size_of(self, value: Any) -> int:
        return getsizeof(value)


class Double(TypeInformation):
    """A 64-bit floating point number; an ``int`` is taken as the nearest one."""

    name = "DOUBLE"
    accepted_class: type | None = float
    struct_format = "d"
    _struct = struct.Struct(">d")

    def normalize(self, value: Any) -> float:
        if isinstance(value, bool | str | bytes):
            raise wrong_value(self, "float", value)
        try:
            return float(value)
        except OverflowError:
            raise InvalidInputError(f"the number does not fit {self!r}", remedy="Declare Types.BIG_INT() or Types.BIG_DEC().") from None
        except (TypeError, ValueError):
            raise wrong_value(self, "float", value) from None

    def encode(self, value: Any) -> bytes:
        return self._struct.pack(self.normalize(value))

    def decode(self, data: bytes) -> float:
        number: float = self._struct.unpack(data)[0]
        return number


class Float(Double):
    """A 32-bit floating point number. What is read back is rounded, from a cache just as from the store."""

    name = "FLOAT"
    accepted_class = None
    struct_format = "f"
    _struct = struct.Struct(">f")

    def normalize(self, value: Any) -> float:
        number = super().normalize(value)
        try:
            rounded: float = self._struct.unpack(self._struct.pack(number))[0]
        except OverflowError:
            return math.copysign(math.inf, number)
        return rounded


class Boolean(TypeInformation):
    """``True`` or ``False``."""

    name = "BOOLEAN"
    accepted_class = bool
    struct_format = "?"

    def normalize(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise wrong_value(self, "bool", value)
        return value

    def encode(self, value: Any) -> bytes:
        return b"\x01" if self.normalize(value) else b"\x00"

    def decode(self, data: bytes) -> bool:
        if data not in {b"\x00", b"\x01"}:
            raise ValueError("0 or 1 expected")
        return data == b"\x01"


class String(TypeInformation):
    """Text of any length, UTF-8."""

    name = "STRING"
    accepted_class: type | None = str
    decoded_bytes: int | None = None

    def normalize(self, value: Any) -> str:
        if not isinstance(value, str):
            raise wrong_value(self, "str", value)
        return str(value)

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise wrong_value(self, "str", value)
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise InvalidInputError(
                f"the text contains an unpaired surrogate, which {self!r} cannot store",
                remedy="Replace it: text.encode(errors='replace').decode()",
            ) from None

    def decode(self, data: bytes) -> str:
        return data.decode()

    def size_of(self, value: Any) -> int:
        return getsizeof(value)


class Char(String):
    """Text of exactly one character."""

    name = "CHAR"
    accepted_class = None
    decoded_bytes = 76

    def normalize(self, value: Any) -> str:
        text = super().normalize(value)
        if len(text) != 1:
            raise InvalidInputError(f"expected one character for {self!r}, got {len(text)}")
        return text

    def encode(self, value: Any) -> bytes:
        return super().encode(self.normalize(value))


class BigDecimal(TypeInformation):
    """A ``decimal.Decimal``, kept digit by digit with its scale: 1.0 and 1.00 are two values."""

    name = "BIG_DEC"
    accepted_class = Decimal
    decoded_bytes = 104

    def normalize(self, value: Any) -> Decimal:
        if not isinstance(value, Decimal):
            raise wrong_value(self, "decimal.Decimal", value)
        return Decimal(value)

    def encode(self, value: Any) -> bytes:
        return str(self.normalize(value)).encode("ascii")

    def decode(self, data: bytes) -> Decimal:
        try:
            return Decimal(data.decode("ascii"))
        except ArithmeticError:
            raise ValueError("not a decimal number") from None


class SqlDate(TypeInformation):
    """A ``datetime.date``: days since 1970-01-01, 4 bytes."""

    name = "SQL_DATE"
    accepted_class = date

    def normalize(self, value: Any) -> date:
        if isinstance(value, datetime):
            raise InvalidInputError(f"expected datetime.date for {self!r}, got datetime", remedy="Give its .date()")
        if not isinstance(value, date):
            raise wrong_value(self, "datetime.date", value)
        return date(value.year, value.month, value.day)

    def encode(self, value: Any) -> bytes:
        return (self.normalize(value).toordinal() - _EPOCH_ORDINAL).to_bytes(4, "big", signed=True)

    def decode(self, data: bytes) -> date:
        _check_length(data, 4)
        return date.fromordinal(int.from_bytes(data, "big", signed=True) + _EPOCH_ORDINAL)


class SqlTime(TypeInformation):
    """A ``datetime.time`` without a zone: microseconds of the day, 8 bytes."""

    name = "SQL_TIME"
    decoded_bytes = 40

    def normalize(self, value: Any) -> time:
        if not isinstance(value, time):
            raise wrong_value(self, "datetime.time", value)
        if value.tzinfo is not None:
            raise InvalidInputError(f"expected a time without a zone for {self!r}", remedy="Give value.replace(tzinfo=None)")
        return value.replace(fold=0)

    def encode(self, value: Any) -> bytes:
        clock = self.normalize(value)
        micros = ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 1_000_000 + clock.microsecond
        return micros.to_bytes(8, "big")

    def decode(self, data: bytes) -> time:
        _check_length(data, 8)
        micros = int.from_bytes(data, "big")
        if micros >= _MICROS_PER_DAY:
            raise ValueError("not within a day")
        return (_EPOCH + micros * _MICROSECOND).time()


class SqlTimestamp(TypeInformation):
    """A ``datetime.datetime`` without a zone: microseconds since 1970-01-01T00:00:00, 8 bytes."""

    name = "SQL_TIMESTAMP"
    decoded_bytes = 48

    def normalize(self, value: Any) -> datetime:
        if not isinstance(value, datetime):
            raise wrong_value(self, "datetime.datetime", value)
        if value.tzinfo is not None:
            raise InvalidInputError(
                f"expected a datetime without a zone for {self!r}", remedy="Give value.astimezone(UTC).replace(tzinfo=None)"
            )
        return datetime(value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)  # noqa: DTZ001

    def encode(self, value: Any) -> bytes:
        return ((self.normalize(value) - _EPOCH) // _MICROSECOND).to_bytes(8, "big", signed=True)

    def decode(self, data: bytes) -> datetime:
        _check_length(data, 8)
        try:
            return _EPOCH + int.from_bytes(data, "big", signed=True) * _MICROSECOND
        except OverflowError:
            raise ValueError("outside the years 1 to 9999") from None


class InstantType(TypeInformation):
    """An `Instant`: seconds and nanoseconds, 12 bytes."""

    name = "INSTANT"
    accepted_class = None
    decoded_bytes = 112

    def normalize(self, value: Any) -> Instant:
        if not isinstance(value, Instant):
            raise wrong_value(self, "Instant", value)
        if not -(1 << 63) <= value.seconds < 1 << 63:
            raise InvalidInputError(f"the seconds do not fit the 8 bytes of {self!r}")
        return value

    def encode(self, value: Any) -> bytes:
        instant = self.normalize(value)
        return _INSTANT.pack(instant.seconds, instant.nanos)

    def decode(self, data: bytes) -> Instant:
        return Instant(*_INSTANT.unpack(data))


def _check_length(data: bytes, size_bytes: int) -> None:
    if len(data) != size_bytes:
        raise ValueError(f"{size_bytes} bytes expected, found {len(data)}")


BYTE: Final = FixedWidthInteger("BYTE", 1, "b")
SHORT: Final = FixedWidthInteger("SHORT", 2, "h")
INT: Final = FixedWidthInteger("INT", 4, "i")
LONG: Final = FixedWidthInteger("LONG", 8, "q")
SCALARS: Final[tuple[TypeInformation, ...]] = (
    BYTE,
    SHORT,
    INT,
    LONG,
    BigInteger(),
    Double(),
    Float(),
    Boolean(),
    String(),
    Char(),
    BigDecimal(),
    SqlDate(),
    SqlTime(),
    SqlTimestamp(),
    InstantType(),
)


def _constant(type_: TypeInformation) -> Callable[[object], TypeInformation]:
    return lambda _description: type_


for _scalar in SCALARS:
    readable(_scalar.name, _constant(_scalar))
