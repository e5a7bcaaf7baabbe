"""Rows per key group, against a dict."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.keygroups import KeyGroupRange
from statefulspark.process.rows.key_group_rows import KeyGroupRows

HASHES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50)


@given(st.lists(HASHES, max_size=5), st.integers(1, 40), st.data())
def test_rows_are_counted_by_the_key_group_of_their_hash(chunks: list[list[int]], max_parallelism: int, data: st.DataObject) -> None:
    """Of negative hashes too; rows of other slots do not count."""
    first = data.draw(st.integers(0, max_parallelism - 1))
    own = KeyGroupRange(first, data.draw(st.integers(first, max_parallelism - 1)))
    rows = KeyGroupRows(own, max_parallelism)
    expected = Counter(each % max_parallelism for chunk in chunks for each in chunk if each % max_parallelism in own)
    for chunk in chunks:
        rows.add(np.array(chunk, dtype=np.int64))
    spread = rows.spread(3)
    assert (spread.rows, spread.key_groups) == (expected.total(), own.count)
    assert spread.top == tuple(sorted(expected.items(), key=lambda item: (-item[1], item[0]))[:3])


def test_what_was_long_ago_fades() -> None:
    """A key group that was hot is overtaken by one that is hot now, long before it has had as many rows."""
    rows = KeyGroupRows(KeyGroupRange(0, 3), 4, window_rows=1000)
    for _ in range(100):
        rows.add(np.full(100, 1, dtype=np.int64))
    assert rows.spread(1).top[0][0] == 1
    for _ in range(12):
        rows.add(np.full(100, 2, dtype=np.int64))
    assert rows.spread(1).top[0][0] == 2
    assert rows.spread(1).rows <= 1000
