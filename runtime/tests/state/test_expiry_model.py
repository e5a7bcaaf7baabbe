"""Time to live against a model: whatever the traffic, nothing visible is removed, and nothing expired stays for more than a round."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from statefulspark.state.api.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.backend import BatchBudget
from statefulspark.state.encoding.segments import ListHead, is_head, is_segment
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.times import Time
from statefulspark.state.types.composites import ListTypeInfo
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import LETTER_GROUPS, KeyedSlot

_BATCH_MS = 50
_GROUPS = LETTER_GROUPS.last - LETTER_GROUPS.first + 1
_LETTERS = [chr(96 + group) for group in range(_GROUPS)]

KINDS = st.sampled_from(["value", "list", "map"])
ORDERS = st.sampled_from(["spread", "ascending", "descending", "again"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.integers(0, 4), st.integers(0, 30)),
        st.tuples(st.just("batch"), st.just(1), st.just(20)),
        st.tuples(st.just("idle"), st.integers(1, 60), st.just(0)),
        st.tuples(st.just("restart"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("snapshot"), st.integers(1, 3), st.integers(0, 30)),
        st.tuples(st.just("full snapshot"), st.just(0), st.just(0)),
    ),
    min_size=10,
    max_size=30,
)


@dataclass
class Model:
    """One state in one slot, and the expiry of each entry that was ever written: (key, map key or element number) to expiry."""

    kind: str
    ttl_ms: int
    order: str
    directory: Path
    expiries: dict[tuple[str, int], int] = field(default_factory=dict)
    slot: KeyedSlot = field(init=False)
    state: Any = None
    swept_ms: int = 0
    longest_ms: int = 0
    """Longest time between two times at which the sweep could run."""
    numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.slot = KeyedSlot(HeapStore(), self.directory, BatchBudget(), key_groups=LETTER_GROUPS)
        self.swept_ms = self.slot.now_ms
        self.declare()

    def declare(self) -> None:
        config = StateTtlConfig.new_builder(Time.milliseconds(self.ttl_ms)).cleanup_full_snapshot().build()
        descriptor: Any
        if self.kind == "value":
            descriptor = ValueStateDescriptor("state", Types.LONG())
            descriptor.enable_time_to_live(config)
            self.state = self.slot.backend.value_state(descriptor)
        elif self.kind == "list":
            descriptor = ListStateDescriptor("state", Types.LONG())
            descriptor.enable_time_to_live(config)
            self.state = self.slot.backend.list_state(descriptor)
            # So small that lists have segments.
            self.state.short_bytes, self.state.tail_bytes, self.state.segment_bytes = 60, 40, 100
        else:
            descriptor = MapStateDescriptor("state", Types.LONG(), Types.LONG())
            descriptor.enable_time_to_live(config)
            self.state = self.slot.backend.map_state(descriptor)

    def batch(self, arrivals: int, *, hold: bool = False) -> None:
        """Run a batch and commit it."""
        self.slot.begin(hold=hold)
        for _ in range(arrivals):
            self.write(next(self.numbers))
        self.slot.finish()

    def write(self, number: int) -> None:
        if self.order == "spread":
            key, place = f"{_LETTERS[number * 7 % _GROUPS]}{number}", 0
        elif self.order == "again":
            key, place = f"{_LETTERS[number * 7 % _GROUPS]}{number % 50}", 0
        else:
            key, place = "k", number if self.order == "ascending" else -number
        self.slot.key(key)
        if self.kind == "value":
            self.state.update(number)
            place = 0
        elif self.kind == "list":
            self.state.add(number)
            place = number
        else:
            self.state.put(place, number)
        self.expiries[key, place] = self.slot.now_ms + self.ttl_ms

    def sweep(self) -> None:
        while self.slot.backend.sweep():
            pass
        self.longest_ms = max(self.longest_ms, self.slot.now_ms - self.swept_ms)
        self.swept_ms = self.slot.now_ms

    def restart(self) -> None:
        """A new incarnation opens the store as it is, with the clock of the last committed batch."""
        self.slot.backend.apply_pending()
        batch = self.slot.backend.batch
        self.slot.backend = self.slot.new_backend()
        self.slot.backend.batch = batch
        self.slot.backend.reached(self.slot.now_ms)
        self.declare()

    def stored(self) -> dict[tuple[str, int], int]:
        """Expiries of the stored entries; of lists and their segments those that expire last."""
        found = {}
        for key, data in self.slot.entries().items():
            length = int.from_bytes(key[4:8], "big")
            name = key[8 : 8 + length].decode()
            if self.kind == "list":
                head = ListHead.unpack(data, "the test") if is_head(data) else None
                part = head.tail if head is not None else data[1:] if is_segment(data) else data
                expiries = [int.from_bytes(payload[:8], "big") for payload in ListTypeInfo.split(part[1:])]
                place = 1 + int.from_bytes(key[8 + length :], "big") if is_segment(data) else 0
                found[name, place] = max([*expiries, *([head.last_ms] if head is not None else [])])
            else:
                rest = key[8 + length :]
                place = self.state._key_type.decode(rest) if rest else 0
                found[name, place] = int.from_bytes(data[1:9], "big")
        return found

    @property
    def round_ms(self) -> float:
        """The longest round, which is half as long if all entries are in one key group."""
        return self.ttl_ms * (0.45 if self.order in ("ascending", "descending") else 0.9)

    def living(self) -> dict[tuple[str, int], int]:
        """What must be stored, as `stored` gives it."""
        found: dict[tuple[str, int], int] = {}
        for (key, place), expiry_ms in self.expiries.items():
            if expiry_ms > self.slot.now_ms:
                name = key, 0 if self.kind == "list" else place
                found[name] = max(expiry_ms, found.get(name, 0))
        return found


@given(KINDS, st.sampled_from([2, 5, 10, 20, 10_000_000]), ORDERS, STEPS)
def test_nothing_visible_goes_and_nothing_expired_stays(kind: str, ttl_batches: int, order: str, steps: list[tuple[str, int, int]]) -> None:
    """Batches of any size, jumps of the clock, restarts, and snapshots during which nothing is swept; kinds and orders of keys."""
    with tempfile.TemporaryDirectory() as folder:
        model = Model(kind, ttl_batches * _BATCH_MS, order, Path(folder))
        for what, size, arrivals in steps:
            if what == "restart":
                model.restart()
                continue
            if what == "full snapshot":
                model.slot.backend.apply_pending()
                model.slot.backend.sweep_for_full_snapshot()
                assert min(model.stored().values(), default=1 << 62) > model.slot.now_ms
                continue
            model.slot.now_ms += size * _BATCH_MS
            if what == "snapshot":
                model.slot.backend.apply_pending()
                for _ in range(size):
                    model.batch(arrivals, hold=True)
                    model.slot.now_ms += _BATCH_MS
            model.batch(arrivals)
            model.slot.backend.apply_pending()
            model.sweep()
            stored = model.stored()
            living = model.living()
            assert {name: stored.get(name) for name in living} == living
            # A group counts for the schedule when its visit has ended, and a step of the clock comes late.
            late_ms = model.round_ms * (1 + 2 / _GROUPS) + model.longest_ms
            assert min(stored.values(), default=1 << 62) > model.slot.now_ms - late_ms
            check_due(model, stored)
        idle(model)
        model.slot.store.close()


def check_due(model: Model, stored: dict[tuple[str, int], int]) -> None:
    """As long as something is stored that expires, the cleanup says by when it needs a batch."""
    due_ms = model.slot.backend.cleanup_report().due_ms
    if stored:
        assert due_ms is not None
        # What was written since the sweep passed counts from the last write.
        assert due_ms <= max(*stored.values(), model.slot.now_ms) + 1.2 * model.ttl_ms


def idle(model: Model) -> None:
    """Without rows, a batch whenever the cleanup is due: everything goes within a bit more than a time to live, and then no more batches are due."""
    until_ms = max(*model.expiries.values(), model.slot.now_ms, 0) + 1.2 * model.ttl_ms
    batches = 0
    while (due_ms := model.slot.backend.cleanup_report().due_ms) is not None:
        assert due_ms <= until_ms
        model.slot.now_ms = max(model.slot.now_ms + 1, due_ms)
        model.batch(0)
        model.slot.backend.apply_pending()
        model.sweep()
        batches += 1
        assert batches <= 2
    assert model.stored() == {}


@given(KINDS, st.sampled_from([2, 3, 5, 10]), ORDERS, st.integers(1, 60), st.booleans())
def test_stored_entries_are_bounded_by_live_ones(kind: str, ttl_batches: int, order: str, arrivals: int, busy: bool) -> None:
    """With constant arrival at most 1.5 times the live entries and two batches are stored, also if only beginning batches clean up."""
    with tempfile.TemporaryDirectory() as folder:
        model = Model(kind, ttl_batches * _BATCH_MS, order, Path(folder))
        for _ in range(5 * ttl_batches):
            model.slot.now_ms += _BATCH_MS
            model.slot.begin()
            if busy:
                model.slot.backend.sweep_overdue()
            for _ in range(arrivals):
                model.write(next(model.numbers))
            model.slot.finish()
            if not busy:
                model.slot.backend.apply_pending()
                model.sweep()
            entries = [place for _, place in model.stored() if kind != "list" or place == 0]
            assert len(entries) <= 1.5 * len(model.living()) + 2 * arrivals
        model.slot.store.close()


@given(st.integers(1, 6), st.integers(0, 40), st.booleans())
def test_an_idle_job_needs_few_batches_for_what_has_expired(groups: int, more_batches: int, late: bool) -> None:
    """With key groups that take many slices and many steps of the clock, whatever a visit had seen when the rows stopped; also right after a batch."""
    with tempfile.TemporaryDirectory() as folder:
        model = Model("value", 24 * _BATCH_MS, "spread", Path(folder))
        for _ in range(50 + more_batches):
            model.slot.now_ms += _BATCH_MS
            model.slot.begin()
            for number in islice(model.numbers, 60):
                model.slot.key(f"{_LETTERS[number % groups]}{number}")
                model.state.update(number)
                model.expiries[f"{_LETTERS[number % groups]}{number}", 0] = model.slot.now_ms + model.ttl_ms
            model.slot.finish()
            if not late:
                model.slot.backend.apply_pending()
                model.sweep()
        idle(model)
        model.slot.store.close()
