"""List states that evolve: short, long and with segments of several schemas, against a model that rewrites all elements at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from statefulspark.checkpoint.inspect.decoding import EntryDecoder, StateEntry
from statefulspark.errors import CorruptDataError, InvalidInputError, NotRestorableError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.api.descriptors import ListStateDescriptor
from statefulspark.state.api.states import ListState
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.backend import BatchBudget
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.encoding.segments import is_segment
from statefulspark.state.evolution.list_reader import ListSchemaReader
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.open_store import sizes_of
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.times import Time
from statefulspark.state.types.types import TypeInformation, Types
from statefulspark.testing.keyed_state import LETTER_GROUPS, KeyedSlot

KEYS = ("a", "b")
KEY_GROUPS = KeyGroupRange(97, 98)
INTEGERS = (Types.INT(), Types.LONG(), Types.BIG_INT())


def declared(slot: KeyedSlot, type_: TypeInformation, ttl_ms: int | None = None, *, on_read: bool = False) -> ListState[Any]:
    descriptor = ListStateDescriptor("s", type_)
    if ttl_ms is not None:
        builder = StateTtlConfig.new_builder(Time.milliseconds(ttl_ms)).cleanup_full_snapshot()
        descriptor.enable_time_to_live((builder.update_ttl_on_read_and_write() if on_read else builder).build())
    return slot.backend.list_state(descriptor)


def restarted(slot: KeyedSlot) -> KeyedSlot:
    """Return a slot over the same store in the next attempt of the job."""
    slot.backend.apply_pending()
    infos = [StateInfo.from_json(info.to_json()) for info in slot.registry.states()]
    again = KeyedSlot(slot.store, slot.directory, slot.budget, StateRegistry(infos, reached_ms=slot.now_ms), key_groups=slot.key_groups)
    again.now_ms = slot.now_ms
    again.backend.batch = slot.backend.batch
    return again


def shown(slot: KeyedSlot) -> dict[str, StateEntry]:
    """Return the lists as a person sees them who looks at a checkpoint, by key."""
    (info,) = (info for info in slot.registry.states() if info.kind == "list")
    found = [EntryDecoder(info).decode(key, data, slot.store.scan) for key, data in slot.entries().items() if not is_segment(data)]
    return {entry.key: entry for entry in found if entry is not None}


class Lists:
    """Lists of a slot whose declaration changes again and again. ``model`` is what is committed: by key, numbers and their expiries."""

    def __init__(self, random: Random, store: KeyValueStore, directory: Path) -> None:
        self.random = random
        self.type, self.ttl_ms, self.on_read = 0, self.drawn_ttl(), random.random() < 0.3
        self.limits = random.choice([(0, 0, 0), (30, 20, 1), (100, 60, 200), (1024, 256, 65536)])
        self.model: dict[str, list[tuple[int, int | None]]] = {key: [] for key in KEYS}
        self.had = {0}
        self.added = 0
        self.upgrades = 0
        budget = BatchBudget(random.choice([0, 2000, 1 << 20]), random.choice([1, 1 << 20]))
        self.slot = KeyedSlot(store, directory, budget, key_groups=KEY_GROUPS)
        self.slot.now_ms = 100
        self.declare()

    def drawn_ttl(self) -> int | None:
        return self.random.choice([None, None, 3, 6, 12])

    def declare(self) -> None:
        self.list = declared(self.slot, INTEGERS[self.type], self.ttl_ms, on_read=self.on_read)
        table: Any = self.list
        table.short_bytes, table.tail_bytes, table.segment_bytes = self.limits

    def living(self, entries: list[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
        return [(number, expiry) for number, expiry in entries if expiry is None or expiry > self.slot.now_ms]

    def new(self) -> tuple[int, int | None]:
        self.added += 1
        return self.added, None if self.ttl_ms is None else self.slot.now_ms + self.ttl_ms

    def batch(self) -> None:
        """Change and read some lists; sometimes all of it is undone and runs again."""
        random, slot = self.random, self.slot
        slot.begin()
        running = dict(self.model)
        for _ in range(random.randint(1, 6)):
            key = random.choice(KEYS)
            slot.key(key)
            match random.choice(["add", "add", "add", "add all", "update", "clear", "read", "read"]):
                case "add":
                    running[key] = [*running[key], self.new()]
                    self.list.add(running[key][-1][0])
                case "add all":
                    added = [self.new() for _ in range(random.randint(0, 9))]
                    running[key] = [*running[key], *added]
                    self.list.add_all([number for number, _ in added])
                case "update":
                    running[key] = [self.new() for _ in range(random.randint(0, 9))]
                    self.list.update([number for number, _ in running[key]])
                case "clear":
                    running[key] = []
                    self.list.clear()
                case _:
                    living = self.living(running[key])
                    assert list(self.list.get()) == [number for number, _ in living]
                    if self.on_read and self.ttl_ms is not None:
                        running[key] = [(number, slot.now_ms + self.ttl_ms) for number, _ in living]
        if random.random() < 0.2:
            slot.backend.abort_batch()
        else:
            slot.finish()
            slot.backend.apply_pending()
            self.model = running

    def wait(self, later_ms: int | None = None) -> None:
        self.slot.now_ms += self.random.randint(1, 5) if later_ms is None else later_ms
        with self.slot.batch():
            pass
        self.slot.backend.apply_pending()

    def sweep(self) -> None:
        """Sweep all. What is left is in the model."""
        self.wait(0)
        if self.ttl_ms is not None:
            self.slot.backend.sweep_for_full_snapshot()
        while self.slot.backend.sweep():
            pass
        if self.ttl_ms is not None:
            held = {key for key, entries in self.model.items() if self.living(entries)}
            assert {chr(key[8]) for key, data in self.slot.entries().items() if not is_segment(data)} == held
            assert held or not self.slot.entries()
        self.check()

    def upgrade(self) -> None:
        """Restart with another declaration: rewrite all expiries of the model at once."""
        if self.random.random() < 0.5:
            self.type = self.random.choice([each for each in range(3) if each >= self.type or each in self.had])
            self.had.add(self.type)
        before, self.ttl_ms = self.ttl_ms, self.drawn_ttl()
        schemas = max(1, len(self.info().schemas))
        self.slot = restarted(self.slot)
        self.declare()
        now_ms = self.slot.now_ms
        assert (len(self.info().schemas) > schemas) or (before is None) == (self.ttl_ms is None)
        if len(self.info().schemas) > schemas:
            self.upgrades += 1
            for key, entries in self.model.items():
                self.model[key] = [
                    (number, None if self.ttl_ms is None else now_ms + self.ttl_ms if expiry is None else expiry)
                    for number, expiry in self.living(entries)
                ]

    def info(self) -> StateInfo:
        (info,) = (info for info in self.slot.registry.states() if info.kind == "list")
        return info

    def check(self) -> None:
        seen = shown(self.slot)
        self.slot.begin()
        for key in KEYS:
            living = self.living(self.model[key])
            self.slot.key(key)
            assert list(self.list.get()) == [number for number, _ in living]
            if not living:
                assert self.ttl_ms is not None or key not in seen
            elif self.ttl_ms is None:
                assert (seen[key].value, seen[key].expires_ms) == ([number for number, _ in living], None)
            else:
                stored = iter(seen[key].value)
                assert all(number in stored for number, _ in living), "those that have expired are shown as long as they are stored"
                assert seen[key].expires_ms == max(expiry or 0 for _, expiry in living)
        self.slot.backend.abort_batch()


def _lives(seed: int, store: KeyValueStore, directory: Path, steps: int = 60) -> int:
    lists = Lists(Random(seed), store, directory)
    for _ in range(steps):
        lists.random.choice([lists.batch, lists.batch, lists.batch, lists.wait, lists.sweep, lists.upgrade])()
    lists.check()
    return lists.upgrades


@pytest.mark.parametrize("seeds", [range(80), pytest.param(range(80, 5000), marks=pytest.mark.exhaustive)])
def test_lists_of_every_length_with_time_to_live_on_and_off(tmp_path: Path, seeds: range) -> None:
    """Elements, their order and their expiries are those of the model, and a sweep removes what the model does not keep, and nothing else."""
    assert sum(_lives(seed, HeapStore(), tmp_path) for seed in seeds) > 2 * len(seeds)


def test_lists_on_rocksdb(tmp_path: Path) -> None:
    """The same on disk."""
    for seed in range(5):
        store = RocksDBStore(tmp_path / str(seed))
        _lives(seed, store, tmp_path, steps=40)
        store.close()


@pytest.fixture(params=[HeapStore, RocksDBStore])
def slot(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyedSlot]:
    store = request.param(tmp_path / "store")
    yield KeyedSlot(store, tmp_path, BatchBudget(0, 64 << 20), key_groups=LETTER_GROUPS)
    store.close()


def written(slot: KeyedSlot) -> int:
    return sum(len(key) + len(data or b"") for key, data in slot.changes)


def test_an_append_to_an_evolved_list_writes_what_it_wrote_before(slot: KeyedSlot) -> None:
    """And three bytes for the schema of head and segment; the segments of the older schema stay as they are."""
    state = declared(slot, Types.INT())
    with slot.batch("a"):
        state.update(range(50_000))
    slot = restarted(slot)
    before = {key: data for key, data in slot.entries().items() if is_segment(data)}
    state = declared(slot, Types.LONG())
    for number in range(40):
        with slot.batch("a"):
            state.add(1 << 40 | number)
        slot.backend.apply_pending()
        assert written(slot) <= 256 + 200 + 2 * 3
    assert before.items() <= slot.entries().items()
    with slot.batch("a"):
        assert list(state.get()) == [*range(50_000), *(1 << 40 | number for number in range(40))]
    sizes = sizes_of(slot.store, LETTER_GROUPS)
    sizes.step(60.0)
    (size,) = sizes.by_state_id().values()
    assert size.entries == 1, "segments of both schemas are parts of one list"


def test_the_layout_of_an_evolved_list(slot: KeyedSlot) -> None:
    """To the byte: head and segments name the schema that wrote them. docs/formats.md describes it."""
    state: Any = declared(slot, Types.INT(), 5)
    state.short_bytes, state.tail_bytes = 30, 20
    with slot.batch("a"):
        state.add_all([1, 2, 3])
    slot = restarted(slot)
    state = declared(slot, Types.LONG())
    state.short_bytes, state.tail_bytes = 30, 20
    with slot.batch("a"):
        state.add(4)
    slot.backend.apply_pending()
    expiry = f"{slot.now_ms + 5:016x}"
    (head_key, head), (_, segment) = slot.entries().items()
    packed = "".join(f"0000000c{expiry}{number:08x}" for number in (1, 2, 3))
    assert segment.hex() == "0805" + "00000003" + packed
    assert head.hex() == "070001" + "06" + f"{1:016x}" + "7fffffffffffffff" + "01" + "00000001" + f"00000008{4:016x}"
    with slot.batch("a"):
        state.update([5, 6, 7])
    slot.backend.apply_pending()
    assert slot.entries()[head_key + bytes(8)].hex() == "070001" + "0801" + "00000003" + "".join(f"00000008{n:016x}" for n in (5, 6, 7))


def test_elements_that_no_longer_fit(slot: KeyedSlot) -> None:
    """After a rollback: only a function that needs the elements gets the error, and the list can be replaced or cleared, of any length."""
    declared(slot, Types.INT())
    slot = restarted(slot)
    state = declared(slot, Types.LONG())
    lengths = {"a": 1, "b": 5_000, "c": 1, "d": 5_000}
    for key, length in lengths.items():
        with slot.batch(key):
            state.update([1 << 40] * length)
        with slot.batch(key):
            state.add(1 << 40)
    slot = restarted(slot)
    state = declared(slot, Types.INT())
    assert {key: type(entry.value) for key, entry in shown(slot).items()} == dict.fromkeys(lengths, bytes), "shown as stored"
    slot.begin()
    slot.backend.prefetch(slot.backend.idents.of_all([(97, b"a"), (98, b"b")]))
    for key in lengths:
        slot.key(key)
        with pytest.raises(InvalidInputError, match=r"state 's' of uid 'step': a value of type LONG does not fit INT"):
            list(state.get())
        if key in "ab":
            state.update([7])
            state.add(8)
        else:
            state.update([7])
            state.clear()
    slot.finish()
    slot.backend.apply_pending()
    assert not any(map(is_segment, slot.entries().values()))
    assert {key: entry.value for key, entry in shown(slot).items()} == {"a": [7, 8], "b": [7, 8]}


def test_what_is_refused(slot: KeyedSlot) -> None:
    """With both types, before anything is read; another length of time to live appends no schema."""
    declared(slot, Types.INT(), 10)
    with pytest.raises(NotRestorableError, match=r"element +INT +element +STRING +of another kind"):
        declared(restarted(slot), Types.STRING(), 10)
    slot = restarted(slot)
    declared(slot, Types.INT(), 11)
    assert all(not info.schemas for info in slot.registry.states())


def _reader(ttl_ms: int | None = None) -> ListSchemaReader:
    registry = StateRegistry()
    for element in ("INT", "LONG"):
        registry = StateRegistry(registry.states(), reached_ms=5)
        registry.register(
            "u", "s", "list", {"key_type": [], "type": {"type": "LIST", "element": {"type": element}}, "ttl_ms": ttl_ms, "segmented": True}
        )
    return ListSchemaReader(registry.states()[0])


@pytest.mark.parametrize(
    "stored",
    [
        *(b"", b"\x07", b"\x07\x00\x01", b"\x07\x00\x02\x01\0\0\0\0", b"\x01\0\0\0\1", b"\x05\0\0\0\0", b"\x06", b"\x06" + bytes(16)),
        *(b"\x06" + bytes(16) + b"\x01", b"\x06" + bytes(16) + b"\x05\0\0\0\0", b"\x08", b"\x08\x05\0\0\0\0", b"\x08\x01\0\0"),
        b"\x07\x00\x01",
    ],
)
@pytest.mark.parametrize("read", [ListSchemaReader.current, ListSchemaReader.stored])
def test_damaged_lists(stored: bytes, read: Callable[[ListSchemaReader, bytes], object]) -> None:
    """Whatever is cut short, is of another lifetime than its schema, or names a schema that does not exist is refused."""
    with pytest.raises(CorruptDataError):
        read(_reader(), stored)


def test_an_expiry_that_is_cut_short() -> None:
    """Each element of a list that expires begins with eight bytes."""
    for stored in (b"\x05\0\0\0\1\0\0\0\3abc", b"\x08\x05\0\0\0\1\0\0\0\3abc"):
        with pytest.raises(CorruptDataError, match="damaged"):
            _reader(ttl_ms=4).current(stored)
