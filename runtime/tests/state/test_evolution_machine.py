"""State that evolves, against a model that converts all values and rewrites all expiries at once when a declaration changes.

Whatever was loaded, written, spilled, swept, snapshotted, restored or rolled back in between, the lazy result must equal the model's.
"""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from statefulspark.checkpoint.inspect.decoding import EntryDecoder
from statefulspark.state.api.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor, ValueStateDescriptor
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.backend import BatchBudget
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.encoding.segments import is_segment
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import LETTER_GROUPS, KeyedSlot

from .evolving_types import Successor, UnfitError, successors, types, values

TTLS = st.none() | st.integers(2, 6)
KINDS = ("value", "list", "map")
_NONE = "None"

Entry = tuple[Any, int | None]
"""A value and its expiry."""


class EvolvingSlot:
    """A value, a list and a map state of one type. ``committed`` and ``running`` are the model: lists of entries by kind, key and user key."""

    def __init__(self, kind: str, data: st.DataObject) -> None:
        self.kind, self.data = kind, data
        self.temporary = tempfile.TemporaryDirectory()
        self.opened = 0
        self.type = data.draw(types())
        self.ttl_ms = data.draw(TTLS)
        self.list_limits = data.draw(st.sampled_from([(0, 0, 0), (20, 10, 30), (60, 40, 1), (1024, 256, 65536)]))
        """Largest short list, tail and segment, in bytes: with the first ones every list has segments, with the last ones none has."""
        self.before: Successor | None = None
        """What a return to the earlier declaration does."""
        self.committed: dict[tuple[str, str, Any], list[Entry]] = {}
        self.running: dict[tuple[str, str, Any], list[Entry]] | None = None
        self.budget = BatchBudget(data.draw(st.sampled_from([0, 1 << 20])), data.draw(st.sampled_from([1, 1 << 20])))
        self.store = self.open_store(Path(self.temporary.name) / "0")
        self.now_ms = 1_000
        self.open(StateRegistry())

    def open_store(self, path: Path) -> KeyValueStore:
        return RocksDBStore(path) if self.kind == "rocksdb" else HeapStore(path)

    def close(self) -> None:
        self.store.close()
        self.temporary.cleanup()

    def open(self, registry: StateRegistry, batch: int = -1) -> None:
        self.slot = KeyedSlot(self.store, Path(self.temporary.name), self.budget, registry, key_groups=LETTER_GROUPS)
        self.slot.backend.batch = batch
        backend = self.slot.backend
        descriptors: list[StateDescriptor] = [
            ValueStateDescriptor("value", self.type),
            ListStateDescriptor("list", self.type),
            MapStateDescriptor("map", Types.STRING(), self.type),
        ]
        for descriptor in descriptors:
            if self.ttl_ms is not None:
                config = StateTtlConfig.new_builder(Time.milliseconds(self.ttl_ms)).cleanup_full_snapshot().build()
                descriptor.enable_time_to_live(config)
        value, elements, mapped = descriptors
        assert isinstance(value, ValueStateDescriptor)
        assert isinstance(elements, ListStateDescriptor)
        assert isinstance(mapped, MapStateDescriptor)
        self.value, self.list, self.map = backend.value_state(value), backend.list_state(elements), backend.map_state(mapped)
        table: Any = self.list
        table.short_bytes, table.tail_bytes, table.segment_bytes = self.list_limits

    # Batches

    def on_key(self, key: str) -> dict[tuple[str, str, Any], list[Entry]]:
        if self.running is None:
            self.slot.now_ms = self.now_ms
            self.slot.begin()
            self.running = copy.deepcopy(self.committed)
        self.slot.key(key)
        return self.running

    def entry(self, value: Any) -> Entry:
        return value, None if self.ttl_ms is None else self.now_ms + self.ttl_ms

    def put(self, key: str) -> None:
        data = self.data
        model = self.on_key(key)
        value = data.draw(values(self.type))
        user_key = data.draw(st.sampled_from(["x", "y"]))
        mapped = data.draw(st.sampled_from([value, None]))
        self.value.update(value)
        self.map.put(user_key, mapped)
        self.list.add(value)
        model["value", key, None] = [self.entry(value)]
        model["list", key, None] = [*model.get(("list", key, None), []), self.entry(value)]
        model["map", key, user_key] = [self.entry(mapped)]

    def put_list(self, key: str) -> None:
        """Add some elements, or replace the list by them."""
        model = self.on_key(key)
        elements = self.data.draw(st.lists(values(self.type), max_size=4))
        before: list[Entry] = []
        if self.data.draw(st.booleans()):
            self.list.add_all(elements)
            before = model.get(("list", key, None), [])
        else:
            self.list.update(elements)
        model["list", key, None] = [*before, *map(self.entry, elements)]

    def clear(self, key: str) -> None:
        model = self.on_key(key)
        self.value.clear()
        self.list.clear()
        self.map.clear()
        for entry in [entry for entry in model if entry[1] == key]:
            del model[entry]

    def read(self, key: str) -> None:
        self.check(key, self.on_key(key))

    def finish(self) -> None:
        if self.running is not None:
            self.slot.finish()
            self.slot.backend.apply_pending()
            self.committed, self.running = self.running, None

    def abort(self) -> None:
        if self.running is not None:
            self.slot.backend.abort_batch()
            self.running = None

    def wait(self, later_ms: int) -> None:
        """A batch without changes is committed at a later time."""
        self.finish()
        self.now_ms += later_ms
        self.on_key("a")
        self.finish()

    def sweep(self) -> None:
        """Remove what has expired; between two batches."""
        self.finish()
        self.slot.backend.sweep_for_full_snapshot()
        while self.slot.backend.sweep():
            pass
        self.all_is_as_in_the_model()

    # Upgrades

    def upgrade(self, what: str) -> None:
        """Restore a snapshot, with a declaration that may have changed. Descriptions make the way that they make through a checkpoint."""
        self.finish()
        data = self.data
        if what == "type":
            successor = data.draw(successors(self.type))
            self.convert(successor.convert)
            self.before = None if successor.back is None else Successor(self.type, successor.back, successor.convert)
            self.type = successor.type
        elif what == "back" and self.before is not None:
            try:
                self.convert(self.before.convert)
            except UnfitError:
                return
            assert self.before.back is not None
            self.before, self.type = Successor(self.type, self.before.back, self.before.convert), self.before.type
        elif what == "ttl":
            self.ttl_ms = data.draw(TTLS)
            self.before = None
        self.opened += 1
        path = Path(self.temporary.name) / str(self.opened)
        self.store.begin_snapshot(path).write()
        self.store.close()
        self.store = self.open_store(path)
        stored = json.loads(json.dumps([info.to_json() for info in self.slot.registry.states()]))
        lengths = {info.name: len(info.schemas) for info in self.slot.registry.states()}
        old = {info.name: info for info in self.slot.registry.states()}
        self.open(StateRegistry(map(StateInfo.from_json, stored), reached_ms=self.now_ms), self.slot.backend.batch)
        for info in self.slot.registry.states():
            if info.name in KINDS and len(info.schemas) > lengths[info.name]:
                self.follow_expiries(info.name)
            if what == "restart":
                assert info == old[info.name], "an unchanged declaration leaves the description as it is"

    def convert(self, convert: Any) -> None:
        """What has expired is converted too, where that is possible; it is gone."""
        converted: dict[tuple[str, str, Any], list[Entry]] = {}
        for key, entries in self.committed.items():
            converted[key] = [
                (None if value is None else convert(value), expiry) for value, expiry in entries if self.lives((value, expiry))
            ]
        self.committed = converted

    def follow_expiries(self, kind: str) -> None:
        for key, entries in self.committed.items():
            if key[0] == kind:
                new = None if self.ttl_ms is None else self.now_ms + self.ttl_ms
                self.committed[key] = [
                    (value, None if self.ttl_ms is None else new if expiry is None else expiry)
                    for value, expiry in entries
                    if self.lives((value, expiry))
                ]

    # Comparison

    def lives(self, entry: Entry) -> bool:
        return entry[1] is None or entry[1] > self.now_ms

    def living(self, model: dict[tuple[str, str, Any], list[Entry]]) -> dict[tuple[str, str, Any], str]:
        found = {key: [value for value, expiry in entries if self.lives((value, expiry))] for key, entries in model.items()}
        return {key: repr(left if key[0] == "list" else left[0]) for key, left in found.items() if left}

    def check(self, key: str, model: dict[tuple[str, str, Any], list[Entry]]) -> None:
        expected = self.living(model)
        assert repr(self.value.value()) == expected.get(("value", key, None), _NONE)
        assert repr(list(self.list.get())) == expected.get(("list", key, None), "[]")
        for user_key in ("x", "y"):
            assert self.map.contains(user_key) == (("map", key, user_key) in expected)
            assert repr(self.map.get(user_key)) == expected.get(("map", key, user_key), _NONE)
        items = {user_key: repr(value) for user_key, value in self.map.items()}
        assert items == {name[2]: text for name, text in expected.items() if name[:2] == ("map", key)}

    def all_is_as_in_the_model(self) -> None:
        """Read as the function does, and as a person does who looks at a checkpoint."""
        expected = self.living(self.committed)
        decoders = {info.state_id: EntryDecoder(info) for info in self.slot.registry.states() if info.name in KINDS}
        found: dict[tuple[str, str, Any], str] = {}
        for store_key, data in self.store.scan(b"", b"\xff\xff"):
            decoder = decoders[int.from_bytes(store_key[2:4], "big")]
            if is_segment(data):
                assert decoder.info.name == "list"
                assert decoder.info.segmented
                continue
            entry = decoder.decode(store_key, data, self.store.scan)
            if entry is not None and decoder.info.name == "list" and self.ttl_ms is not None:
                # Elements that have expired are shown as long as they are stored.
                shown = iter(map(repr, entry.value))
                entries = self.committed.get(("list", entry.key, None), [])
                living = [(repr(value), expiry) for value, expiry in entries if self.lives((value, expiry))]
                assert all(value in shown for value, _ in living)
                assert not living or entry.expires_ms == max(expiry or 0 for _, expiry in living)
                expected.pop(("list", entry.key, None), None)
                continue
            if entry is not None and (entry.expires_ms is None or entry.expires_ms > self.now_ms):
                name = decoder.info.name, entry.key, entry.user_key
                found[name] = repr(entry.value)
        assert found == expected
        for key in ("a", "b"):
            self.check(key, self.on_key(key))
        self.abort()


KEY = st.sampled_from(["a", "b"])


def _step(slot: EvolvingSlot, step: str) -> None:
    key = slot.data.draw(KEY)
    match step:
        case "put":
            slot.put(key)
        case "put list":
            slot.put_list(key)
        case "clear":
            slot.clear(key)
        case "read":
            slot.check(key, slot.on_key(key))
        case "finish":
            slot.finish()
        case "abort":
            slot.abort()
        case "wait":
            slot.wait(slot.data.draw(st.integers(1, 4)))
        case _:
            slot.sweep()


WORK = ("put", "put", "put", "put list", "put list", "clear", "read", "finish", "abort", "wait", "wait", "sweep")
PHASES = [phase for phase in Phase if phase is not Phase.shrink]
"""Examples are small; to make them smaller takes minutes."""
UPGRADES = ("restart", "type", "type", "type", "ttl", "ttl", "back")


@pytest.mark.parametrize(
    ("kind", "examples"), [("memory", 100), ("rocksdb", 10), pytest.param("memory", 3000, marks=pytest.mark.exhaustive)]
)
def test_evolution(kind: str, examples: int) -> None:
    """Values, None in maps, elements of short and long lists, and expiries are what the model has, after any number of upgrades and returns."""

    @settings(max_examples=examples, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data: st.DataObject) -> None:
        slot = EvolvingSlot(kind, data)
        try:
            for _ in range(data.draw(st.integers(1, 5))):
                slot.put(data.draw(KEY))
                for step in data.draw(st.lists(st.sampled_from(WORK), max_size=5)):
                    _step(slot, step)
                slot.upgrade(data.draw(st.sampled_from(UPGRADES)))
            slot.all_is_as_in_the_model()
        finally:
            slot.close()

    run()
