"""Key groups agree with Flink's measured values, and every key group has exactly one owner at any parallelism."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import KeyGroupRange, default_max_parallelism, key_group_range, moves, murmur, ranges, slot_of


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, int]:
    """(parallelism, max_parallelism) within bounds, small enough to enumerate."""
    max_parallelism = draw(st.integers(1, 600))
    return draw(st.integers(1, max_parallelism)), max_parallelism


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        (1, 128),
        (64, 128),
        (85, 128),
        (86, 256),
        (128, 256),
        (170, 256),
        (171, 256),
        (172, 512),
        (200, 512),
        (1000, 2048),
        (20000, 32768),
        (32768, 32768),
    ],
)
def test_default_max_parallelism_is_flinks(parallelism: int, expected: int) -> None:
    """The default rounds 1.5 x parallelism up to a power of two between 128 and 32768."""
    assert default_max_parallelism(parallelism) == expected


@pytest.mark.parametrize(
    ("parallelism", "max_parallelism", "expected"),
    [
        (3, 128, "0-42|43-85|86-127"),
        (5, 128, "0-25|26-51|52-76|77-102|103-127"),
        (4, 10, "0-2|3-4|5-7|8-9"),
        (1, 1, "0-0"),
        (2, 32768, "0-16383|16384-32767"),
    ],
)
def test_ranges_are_flinks(parallelism: int, max_parallelism: int, expected: str) -> None:
    """Ranges equal those that Flink hands out."""
    assert "|".join(str(each) for each in ranges(parallelism, max_parallelism)) == expected


@pytest.mark.parametrize(
    ("code", "expected", "key_group"),
    [
        (0, 593689054, 94),
        (1, 68075478, 86),
        (2, 1085422463, 127),
        (42, 1134849565, 29),
        (-1, 1982413648, 80),
        (97, 1455541201, 81),
        (2147483647, 1653689534, 62),
        (-2147483648, 1718298732, 108),
    ],
)
def test_murmur_is_flinks(code: int, expected: int, key_group: int) -> None:
    """The hash equals Flink's for positive, negative and extreme codes."""
    assert murmur(code) == expected
    assert murmur(code) % 128 == key_group


@given(st.integers(-(2**31), 2**31 - 1))
def test_murmur_is_a_31_bit_number(code: int) -> None:
    """The result can be taken modulo any number of key groups without a sign."""
    assert 0 <= murmur(code) < 2**31


@given(layouts())
def test_ranges_partition_the_key_groups(layout: tuple[int, int]) -> None:
    """Ranges follow each other without gap or overlap, and differ in size by one at most."""
    parallelism, max_parallelism = layout
    owned = ranges(parallelism, max_parallelism)
    assert owned[0].first == 0
    assert owned[-1].last == max_parallelism - 1
    assert all(left.last + 1 == right.first for left, right in itertools.pairwise(owned))
    assert max(each.count for each in owned) - min(each.count for each in owned) <= 1


@given(layouts())
def test_slot_of_is_the_inverse_of_the_range(layout: tuple[int, int]) -> None:
    """Every key group is in the range of the slot that slot_of names, and in no other."""
    parallelism, max_parallelism = layout
    owned = ranges(parallelism, max_parallelism)
    for key_group in range(max_parallelism):
        assert [slot for slot, each in enumerate(owned) if key_group in each] == [slot_of(key_group, parallelism, max_parallelism)]


@given(layouts(), st.data())
def test_moves_counts_key_groups_that_change_slot(layout: tuple[int, int], data: st.DataObject) -> None:
    """The count equals a key-group by key-group comparison, and nothing moves without a change."""
    old, max_parallelism = layout
    new = data.draw(st.integers(1, max_parallelism))
    counted = sum(slot_of(each, old, max_parallelism) != slot_of(each, new, max_parallelism) for each in range(max_parallelism))
    assert moves(max_parallelism, old, new) == counted
    assert moves(max_parallelism, old, old) == 0


def test_range_operations() -> None:
    """Membership, count and intersection treat both ends as inclusive."""
    left, right = KeyGroupRange(0, 5), KeyGroupRange(5, 9)
    assert 0 in left
    assert 5 in left
    assert 6 not in left
    assert "5" not in left
    assert left.count == 6
    assert left.intersect(right) == right.intersect(left) == KeyGroupRange(5, 5)
    assert left.intersect(KeyGroupRange(6, 9)) is None


@pytest.mark.parametrize(
    ("parallelism", "max_parallelism", "field"),
    [(0, 128, "parallelism"), (129, 128, "parallelism"), (1, 0, "max_parallelism"), (1, 32769, "max_parallelism")],
)
def test_bounds_name_the_field(parallelism: int, max_parallelism: int, field: str) -> None:
    """Out of bounds is an InvalidInputError whose field is the argument at fault."""
    for call in (
        lambda: key_group_range(0, parallelism, max_parallelism),
        lambda: ranges(parallelism, max_parallelism),
        lambda: slot_of(0, parallelism, max_parallelism),
        lambda: moves(max_parallelism, parallelism, 1),
    ):
        with pytest.raises(InvalidInputError) as caught:
            call()
        assert caught.value.field == field


def test_slot_and_key_group_bounds() -> None:
    """A slot or key group that the layout does not have is refused by name."""
    for slot in (-1, 3):
        with pytest.raises(InvalidInputError, match=r"slot: .* Use 0 \.\. 2"):
            key_group_range(slot, 3, 128)
    for key_group in (-1, 128):
        with pytest.raises(InvalidInputError, match=r"key_group: .* Use 0 \.\. 127"):
            slot_of(key_group, 3, 128)
    with pytest.raises(InvalidInputError, match="parallelism"):
        default_max_parallelism(0)


@pytest.mark.parametrize(("first", "last", "field"), [(-1, 3, "first"), (32768, 32768, "first"), (4, 3, "last"), (0, 32768, "last")])
def test_a_range_cannot_be_crossed(first: int, last: int, field: str) -> None:
    """A range is never empty and never beyond two bytes."""
    with pytest.raises(InvalidInputError) as caught:
        KeyGroupRange(first, last)
    assert caught.value.field == field
