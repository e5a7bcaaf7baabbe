"""Time, Duration and Instant: PyFlink's small time classes, used in state declarations and values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from statefulspark.errors import InvalidInputError

_NANOS_PER_SECOND = 1_000_000_000
_NANOS_PER_MILLISECOND = 1_000_000


class Time:
    """A length of time in whole milliseconds, built as in PyFlink: ``Time(1000)`` or ``Time.hours(1)``.

    >>> str(Time.seconds(2)), Time(2000) == Time.seconds(2)
    ('2000 ms', True)

    Args:
        milliseconds: May be any integer; users of a ``Time`` state their own bounds.
    """

    __slots__ = ("_milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def to_milliseconds(self) -> int:
        """Return the length in milliseconds."""
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a length of so many milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a length of so many seconds."""
        return Time(seconds * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a length of so many minutes."""
        return Time.seconds(minutes * 60)

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a length of so many hours."""
        return Time.minutes(hours * 60)

    @staticmethod
    def days(days: int) -> Time:
        """Return a length of so many days of 24 hours."""
        return Time.hours(days * 24)

    @staticmethod
    def of(length: Time | Duration | timedelta | int) -> Time:
        """Take a ``Time``, a ``Duration`` or ``timedelta`` (cut to milliseconds) or milliseconds."""
        if isinstance(length, Time):
            return length
        if isinstance(length, Duration):
            return Time(length.nanos // _NANOS_PER_MILLISECOND)
        if isinstance(length, timedelta):
            return Time(length // timedelta(milliseconds=1))
        return Time(length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self._milliseconds == other._milliseconds

    def __hash__(self) -> int:
        return hash(self._milliseconds)

    def __str__(self) -> str:
        return f"{self._milliseconds} ms"

    def __repr__(self) -> str:
        return f"Time({self._milliseconds})"


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time as Flink 2 builds it, whose Java API no longer has ``Time``: ``Duration.of_hours(1)``.

    Attributes:
        nanos: Nanoseconds, may be any integer; users of a ``Duration`` state their own bounds.

    >>> Duration.of_minutes(5) == Duration.of_seconds(300)
    True
    """

    nanos: int

    @classmethod
    def of_nanos(cls, nanos: int) -> Duration:
        """Return a length of so many nanoseconds."""
        return cls(nanos)

    @classmethod
    def of_millis(cls, millis: int) -> Duration:
        """Return a length of so many milliseconds."""
        return cls(millis * _NANOS_PER_MILLISECOND)

    @classmethod
    def of_seconds(cls, seconds: int) -> Duration:
        """Return a length of so many seconds."""
        return cls(seconds * _NANOS_PER_SECOND)

    @classmethod
    def of_minutes(cls, minutes: int) -> Duration:
        """Return a length of so many minutes."""
        return cls.of_seconds(minutes * 60)

    @classmethod
    def of_hours(cls, hours: int) -> Duration:
        """Return a length of so many hours."""
        return cls.of_minutes(hours * 60)

    @classmethod
    def of_days(cls, days: int) -> Duration:
        """Return a length of so many days of 24 hours."""
        return cls.of_hours(days * 24)


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A point on the time line with nanoseconds, the value of ``Types.INSTANT()``.

    Attributes:
        seconds: Seconds since 1970-01-01T00:00:00Z, may be negative.
        nanos: 0 .. 999,999,999, added to ``seconds``.

    Raises:
        InvalidInputError: ``nanos`` is out of bounds.
    """

    seconds: int
    nanos: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.nanos < _NANOS_PER_SECOND:
            raise InvalidInputError("not between 0 and 999,999,999", field="nanos")

    def to_epoch_milli(self) -> int:
        """Return milliseconds since the epoch, rounded down."""
        return self.seconds * 1000 + self.nanos // 1_000_000

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the instant so many milliseconds after the epoch."""
        seconds, milliseconds = divmod(epoch_milli, 1000)
        return Instant(seconds, milliseconds * 1_000_000)
