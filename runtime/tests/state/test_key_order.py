"""KeyOrder: scans see the keys in order whatever came and went, and pay for what they take."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.key_order import KeyOrder

_STATES = (b"\0\1\0\1", b"\0\1\0\2", b"\0\2\0\1")
_PLACES = st.integers(0, 400)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), _PLACES, st.integers(0, 300)),
        st.tuples(st.just("delete"), st.integers(0, 2), _PLACES, st.integers(0, 300)),
        st.tuples(st.just("take"), st.integers(0, 2), st.integers(1, 90), st.just(0)),
        st.tuples(st.just("scan"), st.integers(0, 2), _PLACES, st.integers(0, 300)),
        st.tuples(st.just("scan all"), st.integers(0, 2), _PLACES, st.integers(0, 300)),
    ),
    max_size=40,
)


class CountedKey(bytes):
    """A store key that counts its comparisons."""

    compared: ClassVar[int] = 0

    def __lt__(self, other: bytes) -> bool:
        CountedKey.compared += 1
        return super().__lt__(other)

    def __gt__(self, other: bytes) -> bool:
        CountedKey.compared += 1
        return super().__gt__(other)

    __hash__ = bytes.__hash__


def key(state: int, number: int) -> bytes:
    return _STATES[state] + number.to_bytes(4, "big")


@given(_STEPS, st.randoms(use_true_random=False))
def test_scans_see_the_keys_in_order(steps: list[tuple[str, int, int, int]], random: Random) -> None:
    """Of several states, against a sorted dict: keys come and go anywhere, in any order; some scans take the first keys away, as timers that fire."""
    store, model = HeapStore(), dict[bytes, bytes]()
    store.keep_ordered(1)
    for what, state, first, number in steps:
        low, high = key(state, first), key(state, first + number)
        if what in ("put", "delete"):
            keys = [key(state, place) for place in range(first, first + number)]
            random.shuffle(keys)
            value = b"1" if what == "put" else None
            store.write([(each, value) for each in keys])
            for each in keys:
                if value is None:
                    model.pop(each, None)
                else:
                    model[each] = value
        elif what == "take":
            taken = [each for each, _ in islice(store.scan(key(state, 0), key(state, 1 << 30)), first)]
            assert taken == sorted(each for each in model if each[:4] == _STATES[state])[:first]
            store.write([(each, None) for each in taken])
            for each in taken:
                del model[each]
        else:
            low = b"" if what == "scan all" else low
            assert list(store.scan(low, high)) == sorted(item for item in model.items() if low <= item[0] < high)
    assert list(store.scan(b"", b"\xff")) == sorted(model.items())


@pytest.mark.parametrize("pending", [2000, 32_000])
def test_the_first_keys_cost_the_same_however_many_there_are(pending: int) -> None:
    """New keys while the first ones are taken again and again: comparisons per key grow with the logarithm at most, and no scan sorts the others."""
    random, store = Random(1), HeapStore()
    store.keep_ordered(1)

    def put(numbers: range) -> None:
        store.write([(CountedKey(key(0, random.randrange(1 << 20) << 8 | number & 255)), b"1") for number in numbers])

    CountedKey.compared = 0
    put(range(pending))
    assert CountedKey.compared <= 5 * pending, "they are kept in order as they come"
    CountedKey.compared = 0
    for turn in range(20):
        taken = [each for each, _ in islice(store.scan(key(0, 0), key(0, 1 << 30)), 64)]
        assert len(taken) == 64
        store.write([(each, None) for each in taken])
        put(range(turn * 64, turn * 64 + 64))
    assert CountedKey.compared <= 20 * 64 * 70, "a sort of all keys takes 400,000"


def test_a_key_that_comes_and_goes_far_behind_the_first_ones_is_kept_once() -> None:
    """A timer in the distant future that is deleted and registered again in every batch."""
    store = HeapStore()
    store.write([(key(0, number), b"1") for number in range(1000)])
    assert next(store.scan(key(0, 0), key(0, 1 << 30)))[0] == key(0, 0)
    for _ in range(20_000):
        store.write([(key(0, 999), None), (key(0, 999), b"2")])
    (order,) = store._groups[b"\0\1"]._orders.values()
    assert len(order) < 5000
    assert [each for each, _ in store.scan(key(0, 0), key(0, 1 << 30))] == [key(0, number) for number in range(1000)]


def test_nothing_is_kept_before_the_first_scan() -> None:
    """A state that is never scanned pays no memory for an order of its keys."""
    order = KeyOrder()
    for number in range(1000):
        order.add(key(0, number), {})
    assert (len(order), order.built) == (0, False)
