"""Aggregation of grouped rows and of one stored value per group, by Arrow and NumPy."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

__all__ = ["Groups", "SumOverflowError", "best", "picked", "sum_of"]

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_INT64: Final = np.iinfo(np.int64)
_SIGN_CLEAR: Final = np.int64(_INT64.max)
_NEAR_OVERFLOW: Final = 2.0**62
_WIDE_DIGITS: Final = 76


class SumOverflowError(Exception):
    """A sum does not fit its type."""


class Groups:
    """Groups of rows that stand together, none of them empty.

    A *united* array has one stored value per group, then the rows.

    Args:
        offsets: Where groups begin, and at the end the number of rows.
    """

    def __init__(self, offsets: Numbers) -> None:
        self.offsets = offsets
        self.sizes = np.diff(offsets)
        self.count = len(self.sizes)

    @cached_property
    def starts(self) -> Numbers:
        """Where groups begin in `order`."""
        return self.offsets[:-1] + np.arange(self.count)

    @cached_property
    def order(self) -> Numbers:
        """Positions in a united array that put the stored value of each group before its rows."""
        order = np.empty(self.count + int(self.offsets[-1]), dtype=np.int64)
        stored = np.zeros(len(order), dtype=np.bool_)
        stored[self.starts] = True
        order[stored] = np.arange(self.count)
        order[~stored] = np.arange(self.count, len(order))
        return order

    @cached_property
    def numbers(self) -> Numbers:
        """The number of its group for each value of a united array."""
        every = np.arange(self.count)
        return np.concatenate((every, np.repeat(every, self.sizes)))


def picked(values: pa.Array, positions: Numbers) -> pa.Array:
    """Return the values at these positions, null for -1."""
    return values.take(pa.array(positions, mask=positions < 0))


def best(groups: Groups, values: pa.Array, *, least: bool) -> Numbers:
    """Return the position of the greatest or least of a united array for each group, the last one of equal ones; -1 if all are null."""
    codes, valid = _codes(values)[groups.order], _valid(values)[groups.order]
    codes = np.where(valid, ~codes if least else codes, _INT64.min)
    top = np.repeat(np.maximum.reduceat(codes, groups.starts), groups.sizes + 1)
    at = np.maximum.reduceat(np.where(valid & (codes == top), np.arange(len(codes)), -1), groups.starts)
    return np.where(at < 0, -1, groups.order[at])


def sum_of(groups: Groups, values: pa.Array) -> pa.Array:
    """Return the sum of a united array for each group, null if all are null.

    Args:
        groups: The groups.
        values: Of the type of the sum: int64, double or a decimal.

    Raises:
        SumOverflowError: A sum does not fit the type.
    """
    if pt.is_decimal(values.type):
        return _decimal_sums(groups, values)
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)[groups.order]
    some = np.add.reduceat(_valid(values)[groups.order].astype(np.int64), groups.starts) > 0
    if pt.is_integer(values.type):
        _check_overflow(groups, numbers)
    return pa.array(np.add.reduceat(numbers, groups.starts), mask=~some)


def _check_overflow(groups: Groups, numbers: Numbers) -> None:
    estimates = np.add.reduceat(numbers.astype(np.float64), groups.starts)
    # Their error is far below the distance to the bounds. Few groups come so near to them that they are added again.
    for group in np.flatnonzero(np.abs(estimates) > _NEAR_OVERFLOW).tolist():
        first = int(groups.starts[group])
        if not _INT64.min <= sum(numbers[first : first + int(groups.sizes[group]) + 1].tolist()) <= _INT64.max:
            raise SumOverflowError


def _decimal_sums(groups: Groups, values: pa.Array) -> pa.Array:
    wide = values.cast(pa.decimal256(_WIDE_DIGITS, values.type.scale))
    table = pa.table({"group": groups.numbers, "value": wide})
    sums = table.group_by("group", use_threads=False).aggregate([("value", "sum")])["value_sum"].combine_chunks()
    try:
        return sums.cast(values.type)
    except pa.ArrowInvalid as error:
        raise SumOverflowError from error


def _valid(values: pa.Array) -> Flags:
    valid: Flags = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _codes(values: pa.Array) -> Numbers:
    """Return numbers in the order of the values; those of nulls mean nothing."""
    kind = values.type
    if pt.is_floating(kind):
        numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # there is one zero
        bits = numbers.view(np.int64)
        return np.where(np.isnan(numbers), _INT64.max, np.where(bits < 0, bits ^ _SIGN_CLEAR, bits))
    if pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_temporal(kind):
        plain = values.cast(pa.int32()) if pt.is_date32(kind) or pt.is_time32(kind) else values
        codes: Numbers = plain.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return codes
    ranks: Numbers = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks
