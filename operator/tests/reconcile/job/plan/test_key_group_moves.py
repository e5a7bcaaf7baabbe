"""The plan of a rescale against the assignment of each key group by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from statefulspark_operator.reconcile.job.plan.key_group_moves import moved, moves


@given(st.integers(1, 600), st.data())
def test_moves_are_those_of_flinks_formula(max_parallelism: int, data: st.DataObject) -> None:
    """Oracle: slot = key group * parallelism / maxParallelism, group by group. Ranges are as long as they can be."""
    before = data.draw(st.integers(1, max_parallelism))
    after = data.draw(st.integers(1, max_parallelism))
    expected = {}
    for group in range(max_parallelism):
        owners = (group * before // max_parallelism, group * after // max_parallelism)
        if owners[0] != owners[1]:
            expected[group] = owners
    found = moves(max_parallelism, before, after)
    assert {group: (move.from_slot, move.to_slot) for move in found for group in range(move.first, move.last + 1)} == expected
    assert moved(found) == len(expected)
    assert len({(move.from_slot, move.to_slot) for move in found}) == len(found)
