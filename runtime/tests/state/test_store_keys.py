"""Store keys that are made many at once, against those that are made one by one."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.state.encoding.byte_order import byte_order
from statefulspark.state.encoding.layout import group_prefix, store_key, timer_store_key
from statefulspark.state.encoding.store_keys import entry_keys, timer_keys
from statefulspark.state.tables.point import Heads
from statefulspark.state.timer_queue import SIGN

STATE_ID = 259
LENGTHS = st.lists(st.sampled_from([0, 1, 5, 12, 250, 300]), min_size=1, max_size=3)
COUNTS = st.one_of(st.integers(0, 3), st.integers(60, 200))
"""Few are made one by one."""


def keys(seed: int, lengths: list[int], count: int) -> set[tuple[int, bytes]]:
    """Key groups and keys; many differ in their last bytes only, which may be zeros or above 127."""
    random = Random(seed)
    found = set()
    for _ in range(count):
        length = random.choice(lengths)
        tail = bytes(random.choices([0, 1, 127, 128, 255], k=min(length, 3)))
        found.add((random.choice([0, 1, 255, 256, 32_767]), b"k" * (length - len(tail)) + tail))
    return found


@given(seed=st.integers(0, 1 << 32), lengths=LENGTHS, count=COUNTS)
def test_keys_of_entries_are_those_of_the_layout(seed: int, lengths: list[int], count: int) -> None:
    """Each once, with the position of its ident, and in order if all have one length and are short."""
    given_keys = list(keys(seed, lengths, count))
    made, positions = entry_keys([group_prefix(group) + key for group, key in given_keys], Heads(STATE_ID))
    assert made == [store_key(given_keys[position][0], STATE_ID, given_keys[position][1]) for position in positions]
    assert sorted(positions) == list(range(len(given_keys)))
    if len(set(map(len, made))) == 1 and len(made) >= 64 and lengths[0] < 256:
        assert made == sorted(made)


@given(seed=st.integers(0, 1 << 32), lengths=LENGTHS, count=COUNTS)
def test_keys_of_timers_are_those_of_the_layout(seed: int, lengths: list[int], count: int) -> None:
    """Of any time, past ones and the first and last of all too."""
    random = Random(seed)
    times = [-SIGN, -1, 0, 1, 255, 256, SIGN - 1]
    given_timers = [(random.choice(times), group, key) for group, key in keys(seed, lengths, count)]
    timers = [(time + SIGN).to_bytes(8, "big") + group_prefix(group) + key for time, group, key in given_timers]
    made, positions = timer_keys(timers, STATE_ID)
    expected = [given_timers[position] for position in positions]
    assert made == [timer_store_key(group, STATE_ID, time, key) for time, group, key in expected]
    assert sorted(positions) == list(range(len(timers)))
    if len(set(map(len, made))) == 1 and len(made) >= 64 and lengths[0] < 240:
        assert made == sorted(made)


@given(
    seed=st.integers(0, 1 << 32),
    width=st.integers(1, 30),
    rows=st.integers(1, 200),
    same=st.integers(0, 29),
    values=st.sampled_from([[0, 1], [0, 127, 128, 255], list(range(256))]),
)
def test_the_order_of_bytes_is_that_of_python(seed: int, width: int, rows: int, same: int, values: list[int]) -> None:
    """With bytes that are the same everywhere, few and many that differ, and strings that occur twice."""
    random = Random(seed)
    shared = bytes(random.choices(values, k=width))
    fixed = set(random.sample(range(width), min(same, width)))
    strings = [bytes(shared[at] if at in fixed else random.choice(values) for at in range(width)) for _ in range(rows)]
    order = byte_order(np.frombuffer(b"".join(strings), dtype=np.uint8).reshape(rows, width)).tolist()
    assert sorted(order) == list(range(rows))
    assert [strings[place] for place in order] == sorted(strings)
