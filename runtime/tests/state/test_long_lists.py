"""Lists that are longer than one stored value: what an append writes and reads, what replaces them, and how much memory they take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statefulspark.errors import CorruptDataError, IncompatibleFormatError, UnavailableError
from statefulspark.state.api.descriptors import ListStateDescriptor
from statefulspark.state.api.states import ListState
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.backend import BatchBudget
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.encoding.segments import NEVER_MS, ListHead, is_head, is_segment, whole_list
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.open_store import sizes_of
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.tables.lists import SEGMENT_BYTES, SHORT_BYTES, TAIL_BYTES
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import ASCII_GROUPS, KeyedSlot

ROOM = BatchBudget(64 << 20, 64 << 20)
NO_CACHE = BatchBudget(0, 64 << 20)
TTL_MS = 1000
_STORED_BYTES = 12
"""Of a LONG in a list."""


@pytest.fixture(params=[HeapStore, RocksDBStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyValueStore]:
    opened = request.param(tmp_path / "store")
    yield opened
    opened.close()


class Watched(HeapStore):
    """Counts what is read by scans."""

    scanned = 0

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(first, end):
            self.scanned += 1
            yield entry


def slot_on(store: KeyValueStore, tmp_path: Path, budget: BatchBudget = ROOM, registry: StateRegistry | None = None) -> KeyedSlot:
    return KeyedSlot(store, tmp_path, budget, registry)


def elements(slot: KeyedSlot, *, ttl: bool = False, ttl_ms: int = TTL_MS) -> ListState[Any]:
    descriptor = ListStateDescriptor("list", Types.LONG())
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(ttl_ms)).build())
    return slot.backend.list_state(descriptor)


def written(changes: Iterable[Change]) -> int:
    return sum(len(key) + len(data or b"") for key, data in changes)


def fill(slot: KeyedSlot, count: int, *, ttl: bool = False, key: str = "a") -> None:
    with slot.batch(key):
        elements(slot, ttl=ttl).update(range(count))
    slot.backend.apply_pending()


def append(slot: KeyedSlot, *values: int, ttl: bool = False, key: str = "a") -> None:
    with slot.batch(key):
        elements(slot, ttl=ttl).add_all(values)
    slot.backend.apply_pending()


def read(slot: KeyedSlot, *, ttl: bool = False, key: str = "a") -> list[int]:
    """Read in a batch that is undone."""
    slot.begin()
    slot.key(key)
    found = list(elements(slot, ttl=ttl).get())
    slot.backend.abort_batch()
    return found


def lists(slot: KeyedSlot) -> list[tuple[bytes, bytes | None]]:
    """Put all lists together, as a person sees them who looks at a checkpoint."""
    return [(key, whole_list(key, data, slot.store.scan, "list")) for key, data in slot.entries().items() if not is_segment(data)]


@pytest.mark.parametrize("budget", [ROOM, NO_CACHE], ids=["cached", "uncached"])
@pytest.mark.parametrize("ttl", [False, True])
def test_appends_cost_the_same_whatever_the_length(store: KeyValueStore, tmp_path: Path, budget: BatchBudget, ttl: bool) -> None:
    """Each of 200 appends, one per batch, writes at most the tail, a head and two keys; no more than an append to a list of 10 elements."""
    slot = slot_on(store, tmp_path, budget)
    sums = []
    for key, count, appends in (("a", 10, 10), ("b", 1_000, 200), ("c", 100_000, 200)):
        fill(slot, count, ttl=ttl, key=key)
        sizes = []
        for number in range(appends):
            append(slot, number, ttl=ttl, key=key)
            sizes.append(written(slot.changes))
        assert max(sizes) <= TAIL_BYTES + 200
        sums.append(sum(sizes) / appends)
        assert read(slot, ttl=ttl, key=key) == [*range(count), *range(appends)]
    assert sums[2] == pytest.approx(sums[1], rel=0.02)
    assert sums[2] <= sums[0] * 1.25


def test_an_append_does_not_read_the_segments(tmp_path: Path) -> None:
    """Not with a cold cache either; a read takes them in one scan."""
    store = Watched()
    fill(slot_on(store, tmp_path), 50_000)
    again = slot_on(store, tmp_path, NO_CACHE)
    before = store.scanned
    for number in range(3):
        append(again, number)
    assert store.scanned == before
    assert read(again)[-4:] == [49_999, 0, 1, 2]
    assert store.scanned - before == 50_000 * _STORED_BYTES // SEGMENT_BYTES + 1


@pytest.mark.parametrize("ttl", [False, True])
def test_a_list_of_one_append_per_batch_has_few_segments(tmp_path: Path, ttl: bool) -> None:
    """Each holds more than the tail may: 3,000 appends of 12 (with time to live 20) bytes give fewer than one segment per 256 bytes."""
    slot = slot_on(HeapStore(), tmp_path, NO_CACHE)
    for number in range(3000):
        append(slot, number, ttl=ttl)
    size_bytes = 3000 * (20 if ttl else 12)
    assert size_bytes // (2 * TAIL_BYTES) < sum(map(is_segment, slot.entries().values())) <= size_bytes // TAIL_BYTES
    assert read(slot, ttl=ttl) == list(range(3000))


def test_a_short_list_is_one_value_as_before(store: KeyValueStore, tmp_path: Path) -> None:
    """To the byte what earlier releases wrote, and its description is theirs too."""
    slot = slot_on(store, tmp_path)
    fill(slot, SHORT_BYTES // _STORED_BYTES)
    assert [state.segmented for state in slot.registry.states() if state.kind == "list"] == [False]
    fill(slot, 3)
    (key, data), *others = slot.entries().items()
    assert others == []
    assert key.endswith(b"\0\0\0\1a")
    assert data.hex() == "01" + "00000003" + "".join(f"00000008{number:016x}" for number in range(3))
    assert all("segmented" not in state.to_json() for state in slot.registry.states())


def test_the_layout_of_a_long_list(store: KeyValueStore, tmp_path: Path) -> None:
    """To the byte: segments of 64 KiB and more, and a head with the tail. docs/formats.md describes it."""
    slot = slot_on(store, tmp_path)
    per_segment = -(-SEGMENT_BYTES // _STORED_BYTES)
    fill(slot, 2 * per_segment)
    append(slot, 1, 2)
    (head_key, head), (first_key, first), (second_key, second) = slot.entries().items()
    assert head.hex() == "06" + f"{2:016x}" + "7fffffffffffffff" + "01" + "00000002" + f"00000008{1:016x}" + f"00000008{2:016x}"
    assert first_key == head_key + bytes(8)
    assert second_key == head_key + bytes(7) + b"\1"
    packed = [f"00000008{number:016x}" for number in range(2 * per_segment)]
    assert first.hex() == "0801" + f"{per_segment:08x}" + "".join(packed[:per_segment])
    assert second.hex() == "0801" + f"{per_segment:08x}" + "".join(packed[per_segment:])


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2000, 20_000])
def test_what_replaces_a_long_list_leaves_nothing_of_it(store: KeyValueStore, tmp_path: Path, count: int, loaded: bool) -> None:
    slot = slot_on(store, tmp_path)
    fill(slot, 6000)
    for number in range(300):
        append(slot, number)
    fill(slot, 10, key="b")
    if not loaded:
        slot = slot_on(store, tmp_path, ROOM, slot.registry)
    with slot.batch("a"):
        elements(slot).add(1)
        assert not loaded or len(list(elements(slot).get())) == 6301
        elements(slot).update(range(count))
    slot.backend.apply_pending()
    segments = -(-count * _STORED_BYTES // SEGMENT_BYTES) if count > 1 else 0
    assert len(slot.entries()) == 1 + (segments + 1 if count else 0), "the other key's list stays"
    assert read(slot) == list(range(count))
    assert read(slot, key="b") == list(range(10))


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


def test_a_batch_that_is_rolled_back_leaves_a_long_list_as_it_was(store: KeyValueStore, tmp_path: Path) -> None:
    """With the segments in the cache and without; a retry writes the same bytes."""
    slot = slot_on(store, tmp_path)
    fill(slot, 5000)
    first: list[Change] = []
    for cached in (True, False, True):
        slot.begin()
        slot.key("a")
        assert not cached or len(list(elements(slot).get())) == 5000
        elements(slot).add_all(range(200))
        assert not cached or len(list(elements(slot).get())) == 5200
        if not cached:
            slot.backend.abort_batch()
            continue
        finished = list(slot.finish())
        first = first or finished
        assert finished == first
        slot.begin(slot.backend.batch)
        slot.key("a")
        elements(slot).add_all(range(200))
        assert slot.finish() == first
        slot.begin(slot.backend.batch)
        slot.backend.abort_batch()
    assert read(slot) == list(range(5000))


@pytest.mark.parametrize("dirty_bytes", [1, 20_000])
def test_a_batch_that_spills_appends_to_what_it_has_spilled(store: KeyValueStore, tmp_path: Path, dirty_bytes: int) -> None:
    """And replaces it: the segments in the spill go too."""
    slot = slot_on(store, tmp_path, BatchBudget(0, dirty_bytes))
    fill(slot, 5000)
    with slot.batch():
        for number in range(600):
            slot.key("ab"[number % 2])
            elements(slot).add(number)
    assert len({key for key, _ in slot.changes}) == len(slot.changes), "a key is passed once"
    slot.backend.apply_pending()
    assert read(slot) == [*range(5000), *range(0, 600, 2)]
    with slot.batch("a"):
        for number in range(600):
            elements(slot).add(number)
        assert len(list(elements(slot).get())) == 5900
        elements(slot).update([1])
    slot.backend.apply_pending()
    assert read(slot) == [1]
    assert sum(map(is_segment, slot.entries().values())) == sum(is_segment(data) for key, data in slot.entries().items() if b"b" in key)


def test_lists_that_are_read_count_for_the_cache(tmp_path: Path) -> None:
    """A cache of 1 MB keeps the segments of few of 40 lists of 100 KB, and nothing of a list that is larger than half of it."""
    store = HeapStore()
    writer = slot_on(store, tmp_path)
    keys = [chr(97 + number % 26) + str(number) for number in range(40)]
    for key in keys:
        fill(writer, 2000, key=key)
    fill(writer, 20_000, key="z")
    reader = slot_on(store, tmp_path, BatchBudget(1 << 20, 1 << 20), writer.registry)
    reader.begin()
    for key in [*keys, "z", *keys]:
        reader.key(key)
        assert len(list(elements(reader).get())) == (20_000 if key == "z" else 2000)
        assert loaded_bytes(reader) <= 1 << 20
    assert loaded_bytes(reader) > 1 << 18, "something is kept"


def test_appending_to_lists_that_are_read_keeps_the_bound(tmp_path: Path) -> None:
    """Changes have only what the batch adds: reading and appending to 40 long lists does not spill, and the cache keeps its bound."""
    slot = slot_on(HeapStore(), tmp_path, BatchBudget(1 << 20, 1 << 18))
    keys = [chr(97 + number % 26) + str(number) for number in range(40)]
    for key in keys:
        fill(slot, 2000, key=key)
    for turn in range(3):
        slot.begin()
        for key in keys:
            slot.key(key)
            elements(slot).add(turn)
            assert len(list(elements(slot).get())) == 2001 + turn
            assert loaded_bytes(slot) <= 1 << 20
        assert slot.backend._layers.spills == 0
        slot.finish()
        slot.backend.apply_pending()
        assert loaded_bytes(slot) <= 1 << 20


def loaded_bytes(slot: KeyedSlot) -> int:
    """Memory of segments that the table keeps, counted here and not as the table does."""
    table: Any = elements(slot)
    kept = {id(entry): entry for part in (table._young, table._old) for entry in part.values() if getattr(entry, "loaded", None)}
    return sum(len(payload) + 48 for entry in kept.values() for payload in entry.loaded.payloads)


def test_a_list_is_one_entry_of_the_metric(store: KeyValueStore, tmp_path: Path) -> None:
    """Also when its segments are many; their bytes count."""
    slot = slot_on(store, tmp_path)
    for key in ("a", "b"):
        fill(slot, 10_000, key=key)
    fill(slot, 2, key="c")
    sizes = sizes_of(store, ASCII_GROUPS)
    sizes.step(60.0)
    (size,) = sizes.by_state_id().values()
    assert size.entries == 3
    assert size.size_bytes == written(slot.entries().items())


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


def test_a_long_list_of_an_earlier_release_is_read_and_becomes_long_when_it_changes(store: KeyValueStore, tmp_path: Path) -> None:
    """All of its elements are in one value under the list's key."""
    old = slot_on(store, tmp_path)
    fill(old, 3)
    (key,) = old.entries()
    store.write([(key, bytes.fromhex("01" + "00002710" + "".join(f"00000008{number:016x}" for number in range(10_000))))])
    slot = slot_on(store, tmp_path, ROOM, old.registry)
    assert read(slot) == list(range(10_000))
    append(slot, 1)
    assert written(slot.changes) > 100_000
    append(slot, 2)
    assert written(slot.changes) < TAIL_BYTES + 200
    assert read(slot) == [*range(10_000), 1, 2]
    assert [state.segmented for state in slot.registry.states() if state.kind == "list"] == [True]


def test_a_list_becomes_long_only_if_the_description_says_so(tmp_path: Path) -> None:
    """A batch whose state cannot be described as segmented has written no segment, whatever the function makes of the error."""

    class Refusing(StateRegistry):
        def register(self, uid: str, name: str, kind: str, description: dict[str, Any]) -> StateInfo:
            if description.get("segmented"):
                raise UnavailableError("the coordinator does not answer")
            return super().register(uid, name, kind, description)

    slot = slot_on(HeapStore(), tmp_path, ROOM, Refusing())
    with slot.batch("a"):
        elements(slot).add_all(range(5))
        for change in (elements(slot).add_all, elements(slot).update):
            with pytest.raises(UnavailableError):
                change(range(5000))
    slot.backend.apply_pending()
    assert read(slot) == list(range(5))
    assert not any(is_head(data) or is_segment(data) for data in slot.entries().values())


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


@pytest.mark.parametrize("data", [b"\x06", b"\x06" + bytes(15), b"\x06" + bytes(16), b"\x06" + bytes(16) + b"\1", b"\x08\1\0\0\0\0"])
def test_a_damaged_head_is_told_by_the_name_of_its_state(tmp_path: Path, data: bytes) -> None:
    store = HeapStore()
    old = slot_on(store, tmp_path)
    fill(old, 1)
    (key,) = old.entries()
    store.write([(key, data)])
    with pytest.raises(CorruptDataError, match=r"state 'list' of uid 'step': damaged"):
        read(slot_on(store, tmp_path, ROOM, old.registry))


def test_a_version_of_a_later_release_is_refused_as_unknown(tmp_path: Path) -> None:
    """In place of a head, of a segment and of a tail: the remedy is another release, not an older checkpoint."""
    store = HeapStore()
    old = slot_on(store, tmp_path)
    fill(old, 6000)
    (key, head), (segment_key, _), *_ = old.entries().items()
    for change in [(key, b"\x09"), (key, head[:17] + b"\x09"), (segment_key, b"\x09"), (segment_key, b"\x08\x09")]:
        whole = old.entries()
        store.write([change])
        with pytest.raises(IncompatibleFormatError, match="found 9"):
            read(slot_on(store, tmp_path, ROOM, old.registry))
        store.write(whole.items())


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    """For the slot and for those who read a checkpoint; without time to live nothing removes single segments."""
    store = HeapStore()
    slot = slot_on(store, tmp_path)
    fill(slot, 6000)
    store.write([(next(key for key, data in slot.entries().items() if is_segment(data)), None)])
    with pytest.raises(CorruptDataError, match="segments of a list are missing"):
        read(slot_on(store, tmp_path, ROOM, slot.registry))
    with pytest.raises(CorruptDataError, match="segments of a list are missing"):
        lists(slot)


def test_segments_outside_of_the_head_are_no_part_of_the_list(store: KeyValueStore, tmp_path: Path) -> None:
    """What a sweep has not reached yet, for the slot and for those who read a checkpoint."""
    slot = slot_on(store, tmp_path)
    fill(slot, 3000)
    (key, head), (_, segment) = slot.entries().items()
    assert ListHead.unpack(head, "the test")[:2] == (1, NEVER_MS)
    store.write([(key + bytes(7) + b"\1", segment), (key + bytes(7) + b"\2", segment)])
    assert read(slot_on(store, tmp_path, NO_CACHE, slot.registry)) == list(range(3000))
    assert lists(slot) == [(key, segment[1:])]
    store.write([(key, None)])
    assert lists(slot) == []
