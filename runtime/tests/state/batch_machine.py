"""The life of a batch against a model of plain dicts: batches finish, abort, are retried, held by a snapshot, and survive a restart."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from statefulspark.state.api.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.backend import BatchBudget
from statefulspark.state.encoding.layout import key_group_range_bounds
from statefulspark.state.encoding.segments import ListHead, is_head, is_segment
from statefulspark.state.encoding.values import expiry_of
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.timers import TIMER_KINDS
from statefulspark.state.times import Time
from statefulspark.state.types.composites import ListTypeInfo
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import LETTER_GROUPS, KeyedSlot, key_group

KEYS = st.sampled_from(["a", "aa", "b", "\u00e4"])
USER_KEYS = st.sampled_from(["", "x", "xy", "y"])
TTL_MS = 3
RAW_CHUNK_BYTES = 4
NUMBERS = st.integers(-3, 3)
TIMES = st.integers(-2, 6)
OBJECTS = st.one_of(NUMBERS, st.text(max_size=3), st.lists(NUMBERS, max_size=3), st.dictionaries(st.text(max_size=2), NUMBERS, max_size=2))


def empty_model() -> dict[str, Any]:
    states = ["count", "object", "sum", "list", "map", "fading", "fading_list", "fading_map", "raw"]
    return {**{state: {} for state in states}, **{kind: set() for kind in TIMER_KINDS}}


class BatchMachine(RuleBasedStateMachine):
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
        swept=st.booleans(),
        tail_bytes=st.sampled_from([0, 40, 1024]),
    )
    def start(self, cache_bytes: int, dirty_bytes: int, on_read: bool, swept: bool, tail_bytes: int) -> None:
        self.tail_bytes = tail_bytes
        builder = StateTtlConfig.new_builder(Time.milliseconds(TTL_MS)).cleanup_full_snapshot()
        if on_read:
            builder.update_ttl_on_read_and_write()
        self.ttl = (builder if swept else builder.disable_cleanup_in_background()).build()
        self.committed_ms = self.running_ms = 0
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
        self.raw = backend.raw_keyed()
        self.raw.chunk_bytes = RAW_CHUNK_BYTES
        lists: tuple[Any, ...] = (self.list, self.fading_list)
        for each in lists:
            each.short_bytes, each.tail_bytes, each.segment_bytes = self.tail_bytes, self.tail_bytes // 2, 2 * self.tail_bytes + 1

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
            self.committed_ms = self.running_ms
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
        self.running_ms = self.slot.now_ms
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
    @rule(watermark_ms=st.none() | TIMES, later_ms=st.integers(-1, 3))
    def apply_pending(self, watermark_ms: int | None = None, later_ms: int = 0) -> None:
        """Also read ahead timers of any time, which the next batch may fire or not."""
        self.slot.backend.apply_pending()
        self.slot.backend.timers.read_ahead(watermark_ms, self.slot.now_ms + later_ms)
        self.commit()
        self.all_is_stored()

    @precondition(lambda self: not self.snapshotting)
    @rule(overdue=st.booleans(), reached=st.booleans())
    def sweep(self, overdue: bool, reached: bool) -> None:
        """Remove some of what has expired from the store, while a batch runs or between two."""
        if reached:
            self.slot.backend.reached(self.committed_ms)
        if overdue:
            self.slot.backend.sweep_overdue()
        else:
            self.slot.backend.sweep()

    @precondition(lambda self: self.snapshotting)
    @rule()
    def sweep_for_full_snapshot(self) -> None:
        self.slot.backend.sweep_for_full_snapshot()

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
        self.slot.store.begin_snapshot(directory).write()
        copied = self.open_store(directory)
        assert self.unexpired(dict(copied.scan(b"", b"\xff\xff"))) == self.unexpired(self.stored)
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
        self.slot.store.begin_snapshot(directory).write()
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

    def on_key(self, key: str) -> None:
        """Make a key current, in a new batch if none is running."""
        if self.running is None:
            self.next_batch(0)
        if key != self.key:
            self.slot.key(key)
            self.key = key

    def put(self, state: str, value: Any) -> None:
        if value is None:
            self.model[state].pop(self.key, None)
        else:
            self.model[state][self.key] = value

    # What always holds

    @invariant()
    def store_is_a_committed_batch(self) -> None:
        if hasattr(self, "slot"):
            assert self.unexpired(self.slot.entries()) == self.unexpired(self.stored)

    def unexpired(self, entries: dict[bytes, bytes]) -> dict[bytes, Any]:
        """What a store must hold: of what had expired by the last committed batch, it may have any part, or nothing."""
        kinds = {state.state_id.to_bytes(2, "big"): state.kind if state.ttl_ms else "" for state in self.slot.registry.states()}
        held: dict[bytes, Any] = {}
        for key, data in entries.items():
            kind = kinds[key[2:4]]
            if kind == "list":
                head = ListHead.unpack(data, "the test") if is_head(data) else None
                elements = head.tail if head is not None else data[1:] if is_segment(data) else data
                payloads = ListTypeInfo.split(elements[1:])
                living = [each for each in payloads if int.from_bytes(each[:8], "big", signed=True) > self.committed_ms]
                if head is not None and max(head.last_ms, len(living) and self.committed_ms + 1) > self.committed_ms:
                    held[key] = head.segments, head.last_ms, living
                elif living:
                    held[key] = living
            elif not kind or (expiry_of(data) or 0) > self.committed_ms:
                held[key] = data
        return held
