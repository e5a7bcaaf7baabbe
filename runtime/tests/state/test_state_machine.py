"""The backend against a model of plain dicts, over batches that finish, abort, are retried, spill, evict and survive a restart."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from statefulspark.state.backend import BatchBudget
from statefulspark.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from statefulspark.state.memory import MemoryStore
from statefulspark.state.rocksdb import RocksDBOptions, RocksDBStore
from statefulspark.state.rocksdb_memory import RocksDBMemory
from statefulspark.state.store import KeyValueStore
from statefulspark.state.timers import TIMER_KINDS
from statefulspark.state.typeinfo import Types
from statefulspark.testing.keyed_state import KeyedSlot, key_group

KEYS = st.sampled_from(["a", "aa", "b", "c", "\u00e4"])
USER_KEYS = st.sampled_from(["", "x", "xy", "z"])
NUMBERS = st.integers(-3, 3)
TIMES = st.integers(-4, 12)
OBJECTS = st.one_of(NUMBERS, st.text(max_size=3), st.lists(NUMBERS, max_size=3), st.dictionaries(st.text(max_size=2), NUMBERS, max_size=2))


def empty_model() -> dict[str, Any]:
    return {"count": {}, "object": {}, "sum": {}, "list": {}, "map": {}, **{kind: set() for kind in TIMER_KINDS}}


class BackendMachine(RuleBasedStateMachine):
    """One slot. ``committed`` and ``running`` are the model; ``shadow`` is what replaying the changes gives."""

    def open_store(self, path: Path) -> KeyValueStore:
        raise NotImplementedError

    @initialize(cache_bytes=st.sampled_from([0, 2000, 1 << 20]), dirty_bytes=st.sampled_from([1, 1500, 1 << 20]))
    def start(self, cache_bytes: int, dirty_bytes: int) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        self.directory = Path(self.temporary.name)
        self.opened = 0
        self.committed = empty_model()
        self.running: dict[str, Any] | None = None
        self.finished: dict[str, Any] | None = None
        self.shadow: dict[bytes, bytes] = {}
        self.key = ""
        self.slot = KeyedSlot(self.open_store(self.directory / "0"), self.directory, BatchBudget(cache_bytes, dirty_bytes))
        self.declare()

    def teardown(self) -> None:
        if hasattr(self, "slot"):
            self.slot.store.close()
            self.temporary.cleanup()

    def declare(self) -> None:
        backend = self.slot.backend
        self.count = backend.value_state(ValueStateDescriptor("count", Types.LONG()))
        self.object = backend.value_state(ValueStateDescriptor("object", Types.PICKLED_BYTE_ARRAY()))
        self.sum = backend.reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b, Types.STRING()))
        self.list = backend.list_state(ListStateDescriptor("list", Types.LIST(Types.LONG())))
        self.map = backend.map_state(MapStateDescriptor("map", Types.STRING(), Types.PICKLED_BYTE_ARRAY()))

    @property
    def model(self) -> dict[str, Any]:
        assert self.running is not None
        return self.running

    # Life of a batch

    @precondition(lambda self: self.running is None)
    @rule()
    def next_batch(self) -> None:
        if self.finished is not None:
            self.committed, self.finished = self.finished, None
            self.replay()
        self.slot.begin()
        self.running = copy.deepcopy(self.committed)
        self.key = ""

    @precondition(lambda self: self.finished is not None)
    @rule()
    def same_batch_again(self) -> None:
        self.slot.begin(self.slot.backend.batch)
        self.finished = None
        self.running = copy.deepcopy(self.committed)
        self.key = ""

    @precondition(lambda self: self.running is not None)
    @rule()
    def same_running_batch_again(self) -> None:
        self.slot.begin()
        self.running = copy.deepcopy(self.committed)
        self.key = ""

    @precondition(lambda self: self.running is not None)
    @rule()
    def finish(self) -> None:
        changes = self.slot.finish()
        assert len({key for key, _ in changes}) == len(changes), "a key is passed once"
        self.finished, self.running = self.running, None

    @precondition(lambda self: self.running is not None)
    @rule()
    def abort(self) -> None:
        self.slot.backend.abort_batch()
        self.running = None

    @precondition(lambda self: self.finished is not None)
    @rule()
    def apply_pending(self) -> None:
        self.slot.backend.apply_pending()
        assert self.finished is not None
        self.committed, self.finished = self.finished, None
        self.replay()

    @precondition(lambda self: self.running is None)
    @rule()
    def restart(self) -> None:
        """A new process opens a snapshot of the store and replays the changes of the batch that was pending."""
        self.opened += 1
        directory = self.directory / str(self.opened)
        self.slot.store.snapshot(directory)
        changes = self.slot.changes if self.finished is not None else []
        batch = self.slot.backend.batch
        self.slot.store.close()
        store = self.open_store(directory)
        store.write(changes)
        self.slot = KeyedSlot(store, self.directory, self.slot.budget, self.slot.registry)
        self.slot.backend.batch = batch
        self.declare()
        if self.finished is not None:
            self.committed, self.finished = self.finished, None
            for key, value in changes:
                self.shadow[key] = value if value is not None else b""
            self.shadow = {key: value for key, value in self.shadow.items() if value}

    def replay(self) -> None:
        for key, value in self.slot.changes:
            if value is None:
                self.shadow.pop(key, None)
            else:
                self.shadow[key] = value

    # Work on the current key

    @precondition(lambda self: self.running is not None)
    @rule(key=KEYS, prefetch=st.booleans())
    def set_key(self, key: str, prefetch: bool) -> None:
        if prefetch:
            self.slot.backend.prefetch([(key_group(key), key.encode())])
        self.slot.key(key)
        self.key = key

    def on_key(self) -> bool:
        return self.running is not None and bool(self.key)

    @precondition(on_key)
    @rule(number=st.none() | NUMBERS)
    def update_count(self, number: int | None) -> None:
        assert self.count.value() == self.model["count"].get(self.key)
        self.count.update(number)
        self.put("count", number)

    @precondition(on_key)
    @rule(value=st.none() | OBJECTS)
    def update_object(self, value: Any) -> None:
        self.object.update(value)
        self.put("object", copy.deepcopy(value))
        if isinstance(value, list):
            value.append(9)

    @precondition(on_key)
    @rule()
    def change_read_object(self) -> None:
        value = self.object.value()
        assert value == self.model["object"].get(self.key)
        if isinstance(value, list):
            value.append(9)

    @precondition(on_key)
    @rule(text=st.text(max_size=3))
    def add_to_sum(self, text: str) -> None:
        self.sum.add(text)
        self.put("sum", self.model["sum"].get(self.key, "") + text)

    @precondition(on_key)
    @rule(state=st.sampled_from(["count", "object", "sum", "list", "map"]))
    def clear(self, state: str) -> None:
        getattr(self, state).clear()
        self.model[state].pop(self.key, None)

    @precondition(on_key)
    @rule(elements=st.lists(st.lists(NUMBERS, max_size=2), max_size=3), replace=st.booleans())
    def change_list(self, elements: list[list[int]], replace: bool) -> None:
        if replace:
            self.list.update(elements)
        else:
            self.list.add_all(elements)
        before = [] if replace else self.model["list"].get(self.key, [])
        self.put("list", [*before, *copy.deepcopy(elements)] or None)

    @precondition(on_key)
    @rule(user_key=USER_KEYS, value=st.none() | OBJECTS)
    def put_into_map(self, user_key: str, value: Any) -> None:
        self.map.put(user_key, value)
        self.model["map"].setdefault(self.key, {})[user_key] = copy.deepcopy(value)

    @precondition(on_key)
    @rule(user_key=USER_KEYS)
    def remove_from_map(self, user_key: str) -> None:
        mine = self.model["map"].get(self.key, {})
        assert self.map.get(user_key) == mine.get(user_key)
        assert self.map.contains(user_key) == (user_key in mine)
        self.map.remove(user_key)
        mine.pop(user_key, None)

    @precondition(on_key)
    @rule(added=USER_KEYS)
    def change_map_while_walking(self, added: str) -> None:
        """Removing each entry as it comes by, while another is added, ends and leaves at most the added one."""
        mine = self.model["map"].setdefault(self.key, {})
        for number, user_key in enumerate(self.map.keys()):
            assert number < 10
            self.map.remove(user_key)
            mine.pop(user_key, None)
            if number == 0:
                self.map.put(added, 1)
                mine[added] = 1

    @precondition(on_key)
    @rule(kind=st.sampled_from(TIMER_KINDS), time=TIMES)
    def register_timer(self, kind: str, time: int) -> None:
        self.slot.backend.timers.register(kind, time)
        self.model[kind].add((time, key_group(self.key), self.key))

    @precondition(on_key)
    @rule(kind=st.sampled_from(TIMER_KINDS), time=TIMES)
    def delete_timer(self, kind: str, time: int) -> None:
        self.slot.backend.timers.delete(kind, time)
        self.model[kind].discard((time, key_group(self.key), self.key))

    @precondition(lambda self: self.running is not None)
    @rule(kind=st.sampled_from(TIMER_KINDS), up_to=TIMES, again=st.none() | TIMES, drop=st.none() | TIMES)
    def fire(self, kind: str, up_to: int, again: int | None, drop: int | None) -> None:
        """Each due timer fires once in order, while its first firing registers and deletes others of its key."""
        expected = self.model[kind]
        for number, (timestamp, group, key, key_bytes) in enumerate(self.slot.backend.timers.due(kind, up_to)):
            due = min(expected, key=lambda timer: (timer[0], timer[1], timer[2].encode()))
            assert (timestamp, group, key) == due
            assert key_bytes == key.encode()
            expected.discard(due)
            if number == 0:
                self.slot.key(key)
                self.key = key
                if again is not None:
                    self.register_timer(kind, again)
                if drop is not None:
                    self.delete_timer(kind, drop)
        assert not [timer for timer in expected if timer[0] <= up_to]

    def put(self, state: str, value: Any) -> None:
        if value is None:
            self.model[state].pop(self.key, None)
        else:
            self.model[state][self.key] = value

    # What always holds

    @invariant()
    def reads_agree(self) -> None:
        if not (hasattr(self, "slot") and self.running is not None and self.key):
            return
        assert self.count.value() == self.model["count"].get(self.key)
        assert self.object.value() == self.model["object"].get(self.key)
        assert self.sum.get() == self.model["sum"].get(self.key)
        assert list(self.list.get()) == self.model["list"].get(self.key, [])
        mine = self.model["map"].get(self.key, {})
        assert list(self.map.items()) == sorted(mine.items(), key=lambda item: item[0])
        assert self.map.is_empty() == (not mine)

    @invariant()
    def earliest_timer_agrees(self) -> None:
        if not hasattr(self, "slot"):
            return
        model = self.running or self.finished or self.committed
        for kind in TIMER_KINDS:
            assert self.slot.backend.timers.min_timestamp(kind) == min((timer[0] for timer in model[kind]), default=None)

    @invariant()
    def store_is_the_committed_batch(self) -> None:
        if hasattr(self, "slot"):
            assert self.slot.entries() == self.shadow


class MemoryMachine(BackendMachine):
    def open_store(self, path: Path) -> KeyValueStore:
        return MemoryStore(path)


class RocksDBMachine(BackendMachine):
    memory = RocksDBMemory.managed(16 << 20)

    def open_store(self, path: Path) -> KeyValueStore:
        return RocksDBStore(path, RocksDBOptions(memory=self.memory))


def test_backend_on_memory() -> None:
    """The backend behaves as the model on a store in memory."""
    run_state_machine_as_test(MemoryMachine, settings=settings(max_examples=150, stateful_step_count=40, deadline=None))


def test_backend_on_rocksdb() -> None:
    """The backend behaves as the model on RocksDB."""
    run_state_machine_as_test(RocksDBMachine, settings=settings(max_examples=20, stateful_step_count=40, deadline=None))
