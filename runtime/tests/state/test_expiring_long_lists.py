"""Long lists with a time to live: what a read shows, what a sweep removes, and what must not come back."""

from __future__ import annotations

from pathlib import Path

from statefulspark.state.encoding.segments import ListHead, is_head, is_segment
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.heap_store import HeapStore

from .long_lists import NO_CACHE, ROOM, TTL_MS, append, elements, fill, lists, read, slot_on


def test_clearing_a_list_deletes_the_segments_that_exist(tmp_path: Path) -> None:
    """Not one for each that it ever had: most have expired, and the sweep has removed them."""
    slot = slot_on(HeapStore(), tmp_path)
    for number in range(3000):
        slot.now_ms += 10
        append(slot, number, ttl=True)
        while slot.backend.sweep():
            pass
    heads = [ListHead.unpack(data, "the test") for data in slot.entries().values() if is_head(data)]
    assert heads[0].segments > 200
    slot = slot_on(slot.store, tmp_path, ROOM, slot.registry)
    slot.now_ms += 3000 * 10
    with slot.batch("a"):
        elements(slot, ttl=True).clear()
    assert 1 <= len(slot.changes) <= 20
    slot.backend.apply_pending()
    assert slot.entries() == {}


def test_lists_that_the_sweep_removes_count_once(tmp_path: Path) -> None:
    slot = slot_on(HeapStore(), tmp_path)
    for key in ("a", "b"):
        fill(slot, 10_000, ttl=True, key=key)
    fill(slot, 2, ttl=True, key="c")
    slot.now_ms += 2 * TTL_MS
    append(slot, 1, ttl=True, key="d")
    while slot.backend.sweep():
        pass
    assert len(slot.entries()) == 1
    assert slot.backend.cleanup_report().expired == {"list": 3}


def test_elements_of_a_long_list_expire_and_go(store: KeyValueStore, tmp_path: Path) -> None:
    """A read hides what has expired, the sweep removes segments, shortens the tail, and removes the head last."""
    slot = slot_on(store, tmp_path)
    fill(slot, 5000, ttl=True)
    append(slot, 8, ttl=True)
    slot.now_ms += TTL_MS // 2
    append(slot, 1, 2, ttl=True)
    slot.now_ms += TTL_MS // 2
    append(slot, 0, ttl=True, key="b")
    assert read(slot, ttl=True) == [1, 2]
    while slot.backend.sweep():
        pass
    (_, head), (_, other) = slot.entries().items()
    assert is_head(head)
    assert (len(head), len(other)) == (17 + 5 + 2 * 20, 5 + 20), "the segments are gone, and the tail has two elements"
    assert read(slot, ttl=True) == [1, 2]
    slot.now_ms += TTL_MS
    append(slot, 0, ttl=True, key="c")
    while slot.backend.sweep():
        pass
    assert len(slot.entries()) == 1


def test_segments_outlive_a_tail_with_a_shorter_time_to_live(tmp_path: Path) -> None:
    """The head goes after the last expiry of all, although the elements that were added last expire first."""
    old = slot_on(HeapStore(), tmp_path)
    fill(old, 5000, ttl=True)
    slot = slot_on(old.store, tmp_path, NO_CACHE, old.registry)
    slot.now_ms = old.now_ms
    with slot.batch("a"):
        elements(slot, ttl=True, ttl_ms=TTL_MS // 10).add(1)
    slot.now_ms += TTL_MS // 2
    with slot.batch("b"):
        elements(slot, ttl=True, ttl_ms=TTL_MS // 10).add(1)
    slot.backend.apply_pending()
    while slot.backend.sweep():
        pass
    with slot.batch("a"):
        assert list(elements(slot, ttl=True, ttl_ms=TTL_MS // 10).get()) == list(range(5000))


def test_a_read_writes_a_long_list_again_only_once_a_quarter_has_expired(store: KeyValueStore, tmp_path: Path) -> None:
    slot = slot_on(store, tmp_path)
    fill(slot, 1000, ttl=True)
    slot.now_ms += TTL_MS // 2
    append(slot, *range(4000), ttl=True)
    slot.now_ms += TTL_MS // 2
    with slot.batch("a"):
        assert list(elements(slot, ttl=True).get()) == list(range(4000))
    assert slot.changes == [], "a fifth has expired"
    slot.now_ms += TTL_MS // 2
    with slot.batch("a"):
        assert list(elements(slot, ttl=True).get()) == []
    slot.backend.apply_pending()
    assert slot.entries() == {}


def test_segments_of_an_expired_list_do_not_come_back(tmp_path: Path) -> None:
    """A sweep that stops after the head leaves segments. A new list grows over their numbers and shows none of their elements."""
    slot = slot_on(HeapStore(), tmp_path, NO_CACHE)
    fill(slot, 20_000, ttl=True)
    left = {key: data for key, data in slot.entries().items() if is_segment(data)}
    assert len(left) > 3
    slot.store.write([(key, None) for key, data in slot.entries().items() if is_head(data)])
    slot.now_ms += TTL_MS
    for number in range(200):
        append(slot, number, ttl=True)
        shown = lists(slot)
        assert len(shown) == 1
        assert len(shown[0][1] or b"") == 5 + 20 * (number + 1)
        assert read(slot, ttl=True) == list(range(number + 1))
