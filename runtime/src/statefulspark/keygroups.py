"""Key groups: which slot owns which keys.

A key belongs to one of ``max_parallelism`` key groups for the whole life of a job, and a slot owns a contiguous range of
them. Rescaling moves key groups between slots, never keys between key groups. Driver, exchange, slots, restore and the command
line all take the mapping key hash → key group → slot from here. It is pure integer arithmetic; `slot_expression` is the same
arithmetic for Spark, which routes rows with it.

Source: Apache Flink, ``KeyGroupRangeAssignment`` and ``MathUtils`` (the formulas; ``murmur`` is kept so that state written by
Flink-compatible tools lands in the same groups).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar, cast

from statefulspark.errors import InvalidInputError

MAX_PARALLELISM_LIMIT = 32768
"""Largest number of key groups: a key group is stored in two bytes, and Flink draws the line at 2^15."""

_DEFAULT_MAX_PARALLELISM_FLOOR = 128
_UINT32 = 0xFFFFFFFF

H = TypeVar("H")


@dataclass(frozen=True, slots=True, order=True)
class KeyGroupRange:
    """Key groups ``first .. last``, both inclusive and never empty.

    Attributes:
        first: Lowest key group, 0 .. 32767.
        last: Highest key group, ``first`` .. 32767.

    Raises:
        InvalidInputError: The bounds are crossed or outside what any job can have.
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first < MAX_PARALLELISM_LIMIT:
            raise InvalidInputError(f"{self.first} is not a key group", field="first", remedy=f"Use 0 .. {MAX_PARALLELISM_LIMIT - 1}")
        if not self.first <= self.last < MAX_PARALLELISM_LIMIT:
            raise InvalidInputError(
                f"{self.last} does not follow first = {self.first}",
                field="last",
                remedy=f"Use {self.first} .. {MAX_PARALLELISM_LIMIT - 1}.",
            )

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int) and self.first <= key_group <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    @property
    def count(self) -> int:
        """Number of key groups in the range, at least 1."""
        return self.last - self.first + 1

    def intersect(self, other: KeyGroupRange) -> KeyGroupRange | None:
        """Return the key groups both ranges hold, or None when they share none."""
        first, last = max(self.first, other.first), min(self.last, other.last)
        return KeyGroupRange(first, last) if first <= last else None


def key_group_range(slot: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """Return the key groups that ``slot`` owns.

    Args:
        slot: 0 .. parallelism - 1.
        parallelism: Number of slots, 1 .. max_parallelism.
        max_parallelism: Number of key groups, 1 .. 32768.

    Raises:
        InvalidInputError: An argument is out of bounds; the text names it.
    """
    _check_bounds(parallelism, max_parallelism)
    if not 0 <= slot < parallelism:
        raise InvalidInputError(f"{slot} is not one of {parallelism} slots", field="slot", remedy=f"Use 0 .. {parallelism - 1}")
    first = (slot * max_parallelism + parallelism - 1) // parallelism
    last = ((slot + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(first, last)


def ranges(parallelism: int, max_parallelism: int) -> tuple[KeyGroupRange, ...]:
    """Return every slot's key groups, in slot order; together they hold each key group exactly once.

    Raises:
        InvalidInputError: An argument is out of bounds; the text names it.
    """
    _check_bounds(parallelism, max_parallelism)
    return tuple(key_group_range(slot, parallelism, max_parallelism) for slot in range(parallelism))


def key_group_of_hash(key_hash: H, max_parallelism: int) -> H:
    """Return the key group of a key hash; for a numpy array of hashes, the array of their key groups."""
    return cast("Any", key_hash) % max_parallelism  # type: ignore[no-any-return]  # numpy is not imported here, so its arrays have no type


def slot_of(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the slot that owns ``key_group``; the inverse of `key_group_range`.

    Raises:
        InvalidInputError: An argument is out of bounds; the text names it.
    """
    _check_bounds(parallelism, max_parallelism)
    if not 0 <= key_group < max_parallelism:
        raise InvalidInputError(
            f"{key_group} is not one of {max_parallelism} key groups", field="key_group", remedy=f"Use 0 .. {max_parallelism - 1}."
        )
    return key_group * parallelism // max_parallelism


def slot_expression(key_hash: str, parallelism: int, max_parallelism: int) -> str:
    """Return the Spark SQL expression for the slot that owns the hash in column ``key_hash``.

    Computes ``slot_of(key_group_of_hash(hash, max_parallelism), ...)``.

    Raises:
        InvalidInputError: An argument is out of bounds; the text names it.
    """
    _check_bounds(parallelism, max_parallelism)
    return f"cast(pmod({key_hash}, {max_parallelism}) * {parallelism} div {max_parallelism} as int)"


def moves(max_parallelism: int, old: int, new: int) -> int:
    """Return the number of key groups that change their slot when a job goes from ``old`` to ``new`` slots.

    Args:
        max_parallelism: Number of key groups, 1 .. 32768.
        old: Parallelism before, 1 .. max_parallelism.
        new: Parallelism after, 1 .. max_parallelism.

    Raises:
        InvalidInputError: An argument is out of bounds; the text names it.
    """
    _check_bounds(old, max_parallelism)
    _check_bounds(new, max_parallelism)
    kept = 0
    for slot in range(min(old, new)):
        shared = key_group_range(slot, old, max_parallelism).intersect(key_group_range(slot, new, max_parallelism))
        kept += shared.count if shared else 0
    return max_parallelism - kept


def default_max_parallelism(parallelism: int) -> int:
    """Return Flink's number of key groups for a job that names none: room to grow, a power of two, 128 .. 32768.

    Args:
        parallelism: Number of slots the job starts with, 1 .. 32768.

    Raises:
        InvalidInputError: ``parallelism`` is out of bounds.
    """
    _check_bounds(parallelism, MAX_PARALLELISM_LIMIT)
    wanted = parallelism + parallelism // 2
    next_power_of_two = 1 << (wanted - 1).bit_length()
    return min(max(next_power_of_two, _DEFAULT_MAX_PARALLELISM_FLOOR), MAX_PARALLELISM_LIMIT)


def murmur(code: int) -> int:
    """Spread a Java hash code as Flink does before it takes the key group (``murmur(code) % max_parallelism``).

    Args:
        code: A signed 32-bit hash code; wider integers are cut to their low 32 bits.

    Returns:
        0 .. 2^31 - 1.
    """
    mixed = code * 0xCC9E2D51 & _UINT32
    mixed = _rotate_left(mixed, 15)
    mixed = mixed * 0x1B873593 & _UINT32
    mixed = _rotate_left(mixed, 13)
    mixed = mixed * 5 + 0xE6546B64 & _UINT32
    mixed ^= 4
    mixed ^= mixed >> 16
    mixed = mixed * 0x85EBCA6B & _UINT32
    mixed ^= mixed >> 13
    mixed = mixed * 0xC2B2AE35 & _UINT32
    mixed ^= mixed >> 16
    signed = mixed - (1 << 32) if mixed >> 31 else mixed
    # The smallest integer has no positive counterpart in 32 bits; Flink maps it to 0.
    return 0 if signed == -(1 << 31) else abs(signed)


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _UINT32


def _check_bounds(parallelism: int, max_parallelism: int) -> None:
    if not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise InvalidInputError(
            f"{max_parallelism} key groups are impossible", field="max_parallelism", remedy=f"Use 1 .. {MAX_PARALLELISM_LIMIT}."
        )
    if not 1 <= parallelism <= max_parallelism:
        raise InvalidInputError(
            f"{parallelism} slots cannot share {max_parallelism} key groups", field="parallelism", remedy=f"Use 1 .. {max_parallelism}."
        )
