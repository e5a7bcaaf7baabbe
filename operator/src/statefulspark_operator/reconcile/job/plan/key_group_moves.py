"""The key groups that a rescale moves to another slot. Pure."""

from __future__ import annotations

from statefulspark.keygroups import key_group_range
from statefulspark_operator.api.jobs import KeyGroupMove


def moves(max_parallelism: int, before: int, after: int) -> tuple[KeyGroupMove, ...]:
    """Key groups that change their slot, as ranges of one way each, in order.

    Args:
        max_parallelism: Key groups of the job.
        before: Slots now, 1 .. max_parallelism.
        after: Slots then, 1 .. max_parallelism.
    """
    found: list[KeyGroupMove] = []
    old, new = 0, 0
    # Both assignments are ranges in the order of slots, so one walk meets each pair of a slot before and a slot after that share groups.
    while old < before and new < after:
        first, second = key_group_range(old, before, max_parallelism), key_group_range(new, after, max_parallelism)
        shared = first.intersect(second)
        if shared is not None and old != new:
            found.append(KeyGroupMove(first=shared.first, last=shared.last, from_slot=old, to_slot=new))
        if first.last <= second.last:
            old += 1
        if second.last <= first.last:
            new += 1
    return tuple(found)


def moved(found: tuple[KeyGroupMove, ...]) -> int:
    """Number of key groups that move."""
    return sum(move.last - move.first + 1 for move in found)
