"""The backend against a model of plain dicts, over batches that finish, abort, are retried, spill, evict and survive a restart."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from statefulspark.state import maps, timers
from statefulspark.state.backend import BatchBudget
from statefulspark.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from statefulspark.state.layout import key_group_range_bounds
from statefulspark.state.memory import MemoryStore
from statefulspark.state.rocksdb import RocksDBOptions, RocksDBStore
from statefulspark.state.rocksdb_memory import RocksDBMemory
from statefulspark.state.store import Change, KeyValueStore
from statefulspark.state.timers import TIMER_KINDS
from statefulspark.state.ttl import StateTtlConfig, UpdateType
from statefulspark.state.typeinfo import Types
from statefulspark.testing.keyed_state import LETTER_GROUPS, KeyedSlot, key_group

KEYS = st.sampled_from(["a", "aa", "b", "\u00e4"])
USER_KEYS = st.sampled_from(["", "x", "xy", "y"])
TTL_MS = 3
NUMBERS = st.integers(-3, 3)
TIMES = st.integers(-2, 6)
OBJECTS = st.one_of(NUMBERS, st.text(max_size=3), st.lists(NUMBERS, max_size=3), st.dictionaries(st.text(max_size=2), NUMBERS, max_size=2))


def empty_model() -> dict[str, Any]:
    states = ["count", "object", "sum", "list", "map", "fading", "fading_list", "fading_map"]
    return {**{state: {} for state in states}, **{kind: set() for kind in TIMER_KINDS}}


class BackendMachine(RuleBasedStateMachine):
    """One slot against a model.

    ``committed`` and ``running`` are the model; ``shadow`` is what replaying the changes of committed batches gives, ``stored`` the
    part of it that the store has, ``unstored`` the changes between the two.
    """

    def open_store(self, path: Path) -> KeyValueStore:
        raise NotImplementedError

    @initialize(
        cache_bytes=st.sampled_from([0, 2000, 1 << 20]),
        dirty_bytes=st.sampled_from([1, 1500, 1 << 20]),
        on_read=st.booleans(),
        swept=st.integers(0, 3),
    )
    def start(self, cache_bytes: int, dirty_bytes: int, on_read: bool, swept: int) -> None:
        update_type = UpdateType.OnReadAndWrite if on_read else UpdateType.OnCreateAndWrite
        self.ttl = StateTtlConfig(TTL_MS, update_type, cleanup_entries=swept)
        self.temporary = tempfile.TemporaryDirectory()
        self.directory = Path(self.temporary.name)
        self.opened = 0
        self.committed = empty_model()
        self.running: dict[str, Any] | None = None
        self.finished: dict[str, Any] | None = None
        self.shadow: dict[bytes, bytes] = {}
        self.stored: dict[bytes, bytes] = {}
        self.unstored: list[Change] = []
        self.snapshotting = False
        self.key = ""
        budget = BatchBudget(cache_bytes, dirty_bytes)
        self.slot = KeyedSlot(self.open_store(self.directory / "0"), self.directory, budget, key_groups=LETTER_GROUPS)
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
        fading = ValueStateDescriptor("fading", Types.LONG())
        fading_list = ListStateDescriptor("fading_list", Types.STRING())
        fading_map = MapStateDescriptor("fading_map", Types.STRING(), Types.LIST(Types.LONG()))
        for descriptor in (fading, fading_list, fading_map):
            descriptor.enable_time_to_live(self.ttl)
        self.fading = backend.value_state(fading)
        self.fading_list = backend.list_state(fading_list)
        self.fading_map = backend.map_state(fading_map)

    @property
    def model(self) -> dict[str, Any]:
        assert self.running is not None
        return self.running

    # Life of a batch

    @precondition(lambda self: self.running is None)
    @rule(later_ms=st.integers(0, TTL_MS))
    def next_batch(self, later_ms: int) -> None:
        self.slot.now_ms += later_ms
        self.commit()
        self.begin()

    def commit(self) -> None:
        """The finished batch cannot be undone any more; ``shadow`` knows it, the store perhaps not yet."""
        if self.finished is not None:
            self.committed, self.finished = self.finished, None
            self.unstored += self.slot.changes
            for key, value in self.slot.changes:
                if value is None:
                    self.shadow.pop(key, None)
                else:
                    self.shadow[key] = value

    def begin(self) -> None:
        """Begin a new batch, as a slot does: while a snapshot is taken the store is left alone, if that is possible."""
        if self.snapshotting and not self.slot.backend.can_hold:
            self.end_snapshot()
        self.slot.begin(hold=self.snapshotting)
        if not self.snapshotting:
            self.all_is_stored()
        self.running = copy.deepcopy(self.committed)
        self.key = ""

    def all_is_stored(self) -> None:
        self.stored = dict(self.shadow)
        self.unstored = []

    @precondition(lambda self: self.finished is not None)
    @rule()
    def same_batch_again(self) -> None:
        self.slot.begin(self.slot.backend.batch, hold=self.snapshotting)
        self.finished = None
        self.running = copy.deepcopy(self.committed)
        self.key = ""

    @precondition(lambda self: self.running is not None)
    @rule()
    def finish(self) -> None:
        changes = self.slot.finish()
        assert len({key for key, _ in changes}) == len(changes), "a key is passed once"
        self.finished, self.running = self.running, None

    @precondition(lambda self: self.running is not None)
    @rule(begin_again=st.booleans())
    def undo(self, begin_again: bool) -> None:
        """Abort the batch, or begin it again as a retry does."""
        self.running = None
        if begin_again:
            self.begin()
        else:
            self.slot.backend.abort_batch()

    @precondition(lambda self: self.running is None and not self.snapshotting)
    @rule()
    def apply_pending(self) -> None:
        self.slot.backend.apply_pending()
        self.commit()
        self.all_is_stored()

    @precondition(lambda self: self.running is None and not self.snapshotting)
    @rule()
    def begin_snapshot(self) -> None:
        """From now on until `end_snapshot` the store must stay as it is, whatever batches do."""
        self.apply_pending()
        self.snapshotting = True

    @precondition(lambda self: self.snapshotting)
    @rule()
    def end_snapshot(self) -> None:
        """The snapshot holds exactly the batch at which it began."""
        self.opened += 1
        directory = self.directory / str(self.opened)
        self.slot.store.snapshot(directory)
        copied = self.open_store(directory)
        assert dict(copied.scan(b"", b"\xff\xff")) == self.stored
        copied.close()
        self.snapshotting = False

    @rule(snapshot=st.sampled_from(["begin", "go on", "go on", "go on", "end", "crash"]), again=st.booleans())
    def turn(self, snapshot: str, again: bool) -> None:
        """From one batch to the next in one step, so that several follow each other while a snapshot is taken."""
        if self.running is not None:
            self.finish()
            if again:
                self.same_batch_again()
                return
        if snapshot == "begin" and not self.snapshotting:
            self.begin_snapshot()
        elif snapshot == "end" and self.snapshotting:
            self.end_snapshot()
        elif snapshot == "crash":
            self.restart(rescaled=True)
        self.next_batch(0)

    @precondition(lambda self: self.running is None)
    @rule(rescaled=st.booleans())
    def restart(self, rescaled: bool) -> None:
        """A new process opens a snapshot of the store and replays the changes of every batch since; perhaps by way of two slots."""
        self.opened += 1
        directory = self.directory / str(self.opened)
        self.slot.store.snapshot(directory)
        changes = [*self.unstored, *(self.slot.changes if self.finished is not None else [])]
        batch = self.slot.backend.batch
        self.commit()
        self.slot.store.close()
        store = self.open_store(directory)
        if rescaled:
            store = self.through_two_slots(store, changes)
        else:
            store.write(changes)
        now_ms = self.slot.now_ms
        self.slot = KeyedSlot(store, self.directory, self.slot.budget, self.slot.registry, key_groups=LETTER_GROUPS)
        self.slot.now_ms = now_ms
        self.slot.backend.batch = batch
        self.declare()
        self.snapshotting = False
        self.all_is_stored()

    def through_two_slots(self, old: KeyValueStore, changes: list[Change]) -> KeyValueStore:
        """Cut the state at the key group of "a", replay each half on its own, and put the halves together again."""
        middle = key_group("a") + 1
        self.opened += 1
        whole = self.open_store(self.directory / f"{self.opened}-whole")
        for half, (first, last) in enumerate([(0, middle - 1), (middle, 127)]):
            low, high = key_group_range_bounds(first, last)
            store = self.open_store(self.directory / f"{self.opened}-half-{half}")
            store.write(old.scan(low, high))
            store.write(change for change in changes if low <= change[0] < high)
            whole.write(store.scan(b"", b"\xff\xff"))
            store.close()
        old.close()
        return whole

    # Work on the current key

    @precondition(lambda self: self.running is not None)
    @rule(keys=st.lists(KEYS))
    def prefetch(self, keys: list[str]) -> None:
        self.slot.backend.prefetch([(key_group(key), key.encode()) for key in keys])

    def on_key(self, key: str) -> None:
        """Make a key current, in a new batch if none is running."""
        if self.running is None:
            self.next_batch(0)
        if key != self.key:
            self.slot.key(key)
            self.key = key

    @rule(key=KEYS, number=st.none() | NUMBERS)
    def update_count(self, key: str, number: int | None) -> None:
        self.on_key(key)
        assert self.count.value() == self.model["count"].get(self.key)
        self.count.update(number)
        self.put("count", number)

    @rule(key=KEYS, value=st.none() | OBJECTS)
    def update_object(self, key: str, value: Any) -> None:
        self.on_key(key)
        self.object.update(value)
        self.put("object", copy.deepcopy(value))
        if isinstance(value, list):
            value.append(9)

    @rule(key=KEYS)
    def change_read_object(self, key: str) -> None:
        self.on_key(key)
        value = self.object.value()
        assert value == self.model["object"].get(self.key)
        if isinstance(value, list):
            value.append(9)

    @rule(key=KEYS, text=st.text(max_size=3))
    def add_to_sum(self, key: str, text: str) -> None:
        self.on_key(key)
        self.sum.add(text)
        self.put("sum", self.model["sum"].get(self.key, "") + text)

    @rule(key=KEYS, state=st.sampled_from(["count", "object", "sum", "list", "map", "fading", "fading_list", "fading_map"]))
    def clear(self, key: str, state: str) -> None:
        self.on_key(key)
        getattr(self, state).clear()
        self.model[state].pop(self.key, None)

    @rule(key=KEYS, elements=st.lists(st.lists(NUMBERS, max_size=2), max_size=3), replace=st.booleans())
    def change_list(self, key: str, elements: list[list[int]], replace: bool) -> None:
        self.on_key(key)
        if replace:
            self.list.update(elements)
        else:
            self.list.add_all(elements)
        before = [] if replace else self.model["list"].get(self.key, [])
        self.put("list", [*before, *copy.deepcopy(elements)] or None)

    @rule(key=KEYS, user_key=USER_KEYS, value=st.none() | OBJECTS)
    def put_into_map(self, key: str, user_key: str, value: Any) -> None:
        self.on_key(key)
        self.map.put(user_key, value)
        self.model["map"].setdefault(self.key, {})[user_key] = copy.deepcopy(value)

    @rule(key=KEYS, user_key=USER_KEYS)
    def remove_from_map(self, key: str, user_key: str) -> None:
        self.on_key(key)
        mine = self.model["map"].get(self.key, {})
        assert self.map.get(user_key) == mine.get(user_key)
        assert self.map.contains(user_key) == (user_key in mine)
        self.map.remove(user_key)
        mine.pop(user_key, None)

    @rule(key=KEYS, added=USER_KEYS, dropped=USER_KEYS, all_go=st.booleans())
    def change_map_while_walking(self, key: str, added: str, dropped: str, all_go: bool) -> None:
        """A walk sees no entry that is gone and ends, while entries are added and removed."""
        self.on_key(key)
        mine = self.model["map"].setdefault(self.key, {})
        for number, user_key in enumerate(self.map.keys()):
            assert number < 10
            assert user_key in mine
            if all_go:
                self.map.remove(user_key)
                del mine[user_key]
            if number == 0:
                self.map.put(added, 1)
                mine[added] = 1
                self.map.remove(dropped)
                mine.pop(dropped, None)

    # Work on what expires; the model keeps (value, expiry)

    def expiry(self) -> int:
        return self.slot.now_ms + TTL_MS

    def living(self, pairs: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        """What a read of model pairs sees and leaves."""
        living = [(value, expiry) for value, expiry in pairs if expiry > self.slot.now_ms]
        return [(value, self.expiry()) for value, _ in living] if self.ttl.update_type is UpdateType.OnReadAndWrite else living

    @rule(key=KEYS, number=NUMBERS)
    def update_fading(self, key: str, number: int) -> None:
        self.on_key(key)
        self.fading.update(number)
        self.model["fading"][self.key] = (number, self.expiry())

    @rule(key=KEYS)
    def read_fading(self, key: str) -> None:
        self.on_key(key)
        pairs = self.living([pair] if (pair := self.model["fading"].get(self.key)) else [])
        assert self.fading.value() == (pairs[0][0] if pairs else None)
        self.put("fading", pairs[0] if pairs else None)

    @rule(key=KEYS, text=st.text(max_size=2))
    def add_to_fading_list(self, key: str, text: str) -> None:
        self.on_key(key)
        self.fading_list.add(text)
        self.model["fading_list"][self.key] = [*self.model["fading_list"].get(self.key, []), (text, self.expiry())]

    @rule(key=KEYS)
    def read_fading_list(self, key: str) -> None:
        self.on_key(key)
        pairs = self.living(self.model["fading_list"].get(self.key, []))
        assert list(self.fading_list.get()) == [value for value, _ in pairs]
        self.put("fading_list", pairs or None)

    @rule(key=KEYS, user_key=USER_KEYS, value=st.none() | st.lists(NUMBERS, max_size=2))
    def put_into_fading_map(self, key: str, user_key: str, value: list[int] | None) -> None:
        self.on_key(key)
        self.fading_map.put(user_key, value)
        self.model["fading_map"].setdefault(self.key, {})[user_key] = (copy.copy(value), self.expiry())

    @rule(key=KEYS, user_key=USER_KEYS)
    def read_from_fading_map(self, key: str, user_key: str) -> None:
        self.on_key(key)
        mine = self.model["fading_map"].setdefault(self.key, {})
        pairs = self.living([mine.pop(user_key)] if user_key in mine else [])
        assert self.fading_map.contains(user_key) == bool(pairs)
        assert self.fading_map.get(user_key) == (pairs[0][0] if pairs else None)
        if pairs:
            mine[user_key] = pairs[0]

    @rule(key=KEYS)
    def read_fading_map(self, key: str) -> None:
        self.on_key(key)
        mine = self.model["fading_map"].setdefault(self.key, {})
        for user_key in list(mine):
            pairs = self.living([mine.pop(user_key)])
            if pairs:
                mine[user_key] = pairs[0]
        assert dict(self.fading_map.items()) == {user_key: value for user_key, (value, _) in mine.items()}

    # Timers

    @precondition(lambda self: self.running is not None)
    @rule(kind=st.sampled_from(TIMER_KINDS), pick=st.integers(0, 3))
    def delete_existing_timer(self, kind: str, pick: int) -> None:
        existing = sorted(self.model[kind])
        if existing:
            time, _, key = existing[pick % len(existing)]
            self.delete_timer(key, kind, time)

    @rule(key=KEYS, kind=st.sampled_from(TIMER_KINDS), time=TIMES)
    def register_timer(self, key: str, kind: str, time: int) -> None:
        self.on_key(key)
        self.slot.backend.timers.register(kind, time)
        self.model[kind].add((time, key_group(self.key), self.key))

    @rule(key=KEYS, kind=st.sampled_from(TIMER_KINDS), time=TIMES)
    def delete_timer(self, key: str, kind: str, time: int) -> None:
        self.on_key(key)
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
                if again is not None:
                    self.register_timer(key, kind, again)
                if drop is not None:
                    self.delete_timer(key, kind, drop)
        assert not [timer for timer in expected if timer[0] <= up_to]

    def put(self, state: str, value: Any) -> None:
        if value is None:
            self.model[state].pop(self.key, None)
        else:
            self.model[state][self.key] = value

    # What always holds; the first two look only now and then, because looking moves things into caches

    @rule(key=KEYS)
    def reads_agree(self, key: str) -> None:
        self.on_key(key)
        assert self.count.value() == self.model["count"].get(self.key)
        assert self.object.value() == self.model["object"].get(self.key)
        assert self.sum.get() == self.model["sum"].get(self.key)
        assert list(self.list.get()) == self.model["list"].get(self.key, [])
        mine = self.model["map"].get(self.key, {})
        assert list(self.map.items()) == sorted(mine.items(), key=lambda item: item[0])
        assert self.map.is_empty() == (not mine)
        assert [self.map.get(user_key) for user_key in ("", "x", "y")] == [mine.get(user_key) for user_key in ("", "x", "y")]

    @rule()
    def earliest_timers_agree(self) -> None:
        model = self.running or self.finished or self.committed
        for kind in TIMER_KINDS:
            assert self.slot.backend.timers.min_timestamp(kind) == min((timer[0] for timer in model[kind]), default=None)

    @invariant()
    def store_is_a_committed_batch(self) -> None:
        if hasattr(self, "slot"):
            assert self.slot.entries() == self.stored


class MemoryMachine(BackendMachine):
    def open_store(self, path: Path) -> KeyValueStore:
        return MemoryStore(path)


_LIFE = {"start", "next_batch", "same_batch_again", "finish", "undo", "apply_pending", "restart", "prefetch"}
_LIFE |= {"begin_snapshot", "end_snapshot", "turn"}


def focused(name: str, *rules: str) -> type[BackendMachine]:
    """A machine with only these rules for work, so that its runs get deep into them."""
    work = {rule for rule, member in vars(BackendMachine).items() if hasattr(member, "hypothesis_stateful_rule")}
    assert set(rules) <= work
    return type(name, (MemoryMachine,), dict.fromkeys(work - set(rules) - _LIFE))


def called_only(name: str) -> Callable[..., None]:
    """A rule as a plain method: other rules call it, hypothesis does not."""

    def call(self: BackendMachine, *arguments: Any, **named: Any) -> None:
        getattr(BackendMachine, name)(self, *arguments, **named)

    return call


class HeldMachine(focused("HeldMachine", "update_count", "update_object", "reads_agree")):  # type: ignore[misc]  # made above
    """Goes from batch to batch in single steps, so that most of its runs have several batches within one snapshot."""

    finish, next_batch, same_batch_again = called_only("finish"), called_only("next_batch"), called_only("same_batch_again")
    begin_snapshot, end_snapshot, restart = called_only("begin_snapshot"), called_only("end_snapshot"), called_only("restart")
    apply_pending = called_only("apply_pending")
    undo = None


TimersMachine = focused("TimersMachine", "register_timer", "delete_timer", "delete_existing_timer", "fire", "earliest_timers_agree")
MapMachine = focused("MapMachine", "put_into_map", "remove_from_map", "change_map_while_walking", "clear", "reads_agree")
FadingMachine = focused(
    "FadingMachine",
    "update_fading",
    "read_fading",
    "add_to_fading_list",
    "read_fading_list",
    "put_into_fading_map",
    "read_from_fading_map",
    "read_fading_map",
    "clear",
)


class RocksDBMachine(BackendMachine):
    memory = RocksDBMemory.managed(16 << 20)

    def open_store(self, path: Path) -> KeyValueStore:
        return RocksDBStore(path, RocksDBOptions(memory=self.memory))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is read in chunks be read in chunks of two, so that few entries reach their borders."""
    monkeypatch.setattr(maps, "_CHUNK_ENTRIES", 2)
    monkeypatch.setattr(timers, "_AHEAD_TIMERS", 2)


@pytest.mark.parametrize(
    ("machine", "examples", "steps"),
    [
        (MemoryMachine, 150, 60),
        (HeldMachine, 150, 40),
        (TimersMachine, 200, 60),
        (MapMachine, 200, 60),
        (FadingMachine, 200, 60),
        (RocksDBMachine, 15, 60),
    ],
)
def test_backend_behaves_as_the_model(machine: type[BackendMachine], examples: int, steps: int) -> None:
    """Whatever happens to a batch, reads, timers and the store's bytes are those of the model."""
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None))
