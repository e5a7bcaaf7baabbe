"""The aggregates of ``KeyedStream.aggregate``, as users declare them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Aggregate", "count", "last", "max_", "max_by", "min_", "min_by", "sum_"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate; made by the functions of this module.

    Attributes:
        kind: The name of the function.
        columns: Its arguments.
    """

    kind: str
    columns: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(map(repr, self.columns))})"


def count(column: str | None = None) -> Aggregate:
    """Count the rows of a key, or those in which ``column`` is not null (bigint).

    >>> count(), count("amount")
    (count(), count('amount'))
    """
    return Aggregate("count", () if column is None else (column,))


def sum_(column: str) -> Aggregate:
    """Add the values of ``column``, without nulls; null if there are no others.

    Integers give a bigint, floating-point numbers a double, and a decimal one with ten more digits, as with Spark's ``sum``. A batch whose sum does not
    fit fails.

    >>> sum_("amount")
    sum_('amount')
    """
    return Aggregate("sum_", (column,))


def min_(column: str) -> Aggregate:
    """Keep the least value of ``column``, without nulls; NaN is greater than all numbers."""
    return Aggregate("min_", (column,))


def max_(column: str) -> Aggregate:
    """Keep the greatest value of ``column``, without nulls; NaN is greater than all numbers."""
    return Aggregate("max_", (column,))


def last(column: str) -> Aggregate:
    """Keep the value of ``column`` in the last row, also if it is null. With ``event_time``, rows of a batch are in its order."""
    return Aggregate("last", (column,))


def min_by(column: str, by: str) -> Aggregate:
    """Keep the value of ``column`` in the row with the least value of ``by``, the last one of several. Rows in which ``by`` is null are ignored."""
    return Aggregate("min_by", (column, by))


def max_by(column: str, by: str) -> Aggregate:
    """Keep the value of ``column`` in the row with the greatest value of ``by``, the last one of several. Rows in which ``by`` is null are ignored.

    >>> max_by("page", "at")
    max_by('page', 'at')
    """
    return Aggregate("max_by", (column, by))
