"""Sizes of states, against counting everything."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import store_key
from statefulspark.state.store import state_sizes as sizes_module
from statefulspark.state.store.base import Change
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.open_store import sizes_of
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.store.state_sizes import SampledSizes, StateSizes, SweptSizes

GROUPS = KeyGroupRange(10, 19)


def entries(number: int, seed: int = 1) -> list[Change]:
    """Entries of three states, the third with much larger values than the first."""
    chance = Random(seed)
    return [(store_key(chance.randint(10, 19), state := chance.choice((1, 1, 2, 300)), b"k%d" % at), b"v" * state) for at in range(number)]


def measured(sizes: StateSizes) -> dict[int, tuple[int, int]]:
    return {state: (size.entries, size.size_bytes) for state, size in sizes.by_state_id().items()}


def counted(changes: list[Change]) -> dict[int, tuple[int, int]]:
    numbers: Counter[int] = Counter()
    bytes_: Counter[int] = Counter()
    for key, value in changes:
        state = int.from_bytes(key[2:4], "big")
        numbers[state] += 1
        bytes_[state] += len(key) + len(value or b"")
    return {state: (numbers[state], bytes_[state]) for state in numbers}


@given(st.integers(0, 1500), st.integers(0, 9))
def test_a_whole_round_counts_exactly(number: int, seed: int) -> None:
    """Also when a key group takes several chunks."""
    changes = entries(number, seed)
    store = HeapStore()
    store.write(changes)
    sizes = SweptSizes(store, GROUPS)
    sizes.step(60.0)
    assert measured(sizes) == counted(changes)
    assert sizes.coverage() == 1.0
    store.write([(key, None) for key, _ in changes[:100]])
    sizes.step(60.0)
    assert measured(sizes) == counted(changes[100:]), "the next round replaces what it counted before"


def test_a_step_ends_when_its_time_is_up_and_the_next_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been seen stands for the rest; in RocksDB."""
    changes = entries(6000)
    store = RocksDBStore(tmp_path / "db")
    store.write(changes)
    clock = iter(range(100_000))
    monkeypatch.setattr(sizes_module, "monotonic", lambda: next(clock))
    sizes = sizes_of(store, GROUPS)
    steps = 0
    while sizes.coverage() < 1.0:
        sizes.step(3.0)
        steps += 1
        if 0.3 < sizes.coverage() < 0.7:
            for state, (number, size_bytes) in counted(changes).items():
                guess = sizes.by_state_id()[state]
                assert guess.entries == pytest.approx(number, rel=0.2)
                assert guess.size_bytes == pytest.approx(size_bytes, rel=0.2)
    assert steps > 5
    assert measured(sizes) == counted(changes)
    store.close()


def test_a_store_in_memory_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly when it is small, to a tenth when it is large, indexed or not, and after deletes."""
    store = HeapStore()
    sizes = sizes_of(store, GROUPS)
    assert isinstance(sizes, SampledSizes)
    sizes.step(0)
    assert measured(sizes) == {}
    changes = entries(2000)
    store.write(changes)
    sizes.step(0)
    assert measured(sizes) == counted(changes)
    more = entries(40_000, seed=2)
    store.write(more)
    present = dict([*changes, *more])
    for _ in range(2):
        sizes.step(0)
        for state, (number, size_bytes) in counted(list(present.items())).items():
            guess = sizes.by_state_id()[state]
            assert guess.entries == pytest.approx(number, rel=0.15)
            assert guess.size_bytes == pytest.approx(size_bytes, rel=0.15)
        list(store.scan(b"", b"\xff"))  # brings the index up
        for key in list(present)[:10_000]:
            del present[key]
            store.write([(key, None)])
