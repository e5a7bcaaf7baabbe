"""A slice of a sweep is short also where there is nothing to check: in a job with many key groups, most of which are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.tables.sweep import Sweep, Swept

_GROUPS = 32_768


class Empty:
    """A state without entries."""

    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:
        assert next(entries, None) is None
        return Swept([], [], 0, None, 0, 0, None)


@pytest.mark.parametrize("entries_max", [None, 5])
def test_a_run_ends_after_so_many_key_groups(entries_max: int | None) -> None:
    """Groups that are known to have nothing cost no checks, so their number is bounded on its own. The round goes on in the next run."""
    sweep = Sweep(HeapStore(), 1, KeyGroupRange(0, _GROUPS - 1), Empty(), ttl_ms=1000)
    while not sweep.run(_GROUPS, 0, 0, entries_max=entries_max).round_ended:
        pass
    progress = [0.0]
    while True:
        ran = sweep.run(1000, 500, 500, entries_max=entries_max)
        assert (ran.checks, ran.entries) == (0, 0), "all groups are skipped"
        if ran.round_ended:
            break
        progress.append(sweep.progress)
    steps = [(after - before) * _GROUPS for before, after in pairwise(progress)]
    assert max(steps) <= 1000
    assert len(steps) == _GROUPS // 1000, "a run ends early for no other reason"
