"""The backend against a model of plain dicts, over batches that finish, abort, are retried, spill, evict and survive a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from statefulspark.state import timer_front
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.open_store import open_store
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore
from statefulspark.state.tables import map_entries

from .raw_rules import RawRules
from .state_rules import ExpiryRules, StateRules, TimerRules


class BackendMachine(StateRules, ExpiryRules, TimerRules, RawRules):
    """All rules."""


class MemoryMachine(BackendMachine):
    def open_store(self, path: Path) -> KeyValueStore:
        return HeapStore(path)


class FrozenSnapshots(BackendMachine):
    """Snapshots of the store that begin between any two writes and are written at any later time, also after the store is closed."""

    @rule()
    def freeze(self) -> None:
        """Batches go on at once."""
        self.opened += 1
        directory = self.directory / f"frozen-{self.opened}"
        self.frozen = [*getattr(self, "frozen", []), (directory, self.slot.entries(), self.slot.store.begin_snapshot(directory))][-3:]

    @precondition(lambda self: bool(getattr(self, "frozen", [])))
    @rule(newest=st.booleans())
    def write_frozen(self, newest: bool) -> None:
        """To the byte what the store held when the snapshot began."""
        directory, expected, snapshot = self.frozen.pop(-1 if newest else 0)
        snapshot.write()
        copied = self.open_store(directory)
        assert dict(copied.scan(b"", b"\xff\xff")) == expected
        copied.close()


class FrozenMachine(MemoryMachine, FrozenSnapshots):
    """A HeapStore that is frozen and written."""


_LIFE = {"start", "next_batch", "same_batch_again", "finish", "undo", "apply_pending", "restart", "prefetch"}
_LIFE |= {"begin_snapshot", "end_snapshot", "turn"}


def focused(name: str, *rules: str) -> type[BackendMachine]:
    """A machine with only these rules for work, so that its runs get deep into them."""
    members = [member for kind in BackendMachine.__mro__ for member in vars(kind).items()]
    work = {rule for rule, member in members if hasattr(member, "hypothesis_stateful_rule")}
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


class ListMachine(focused("ListMachine", "change_list", "add_to_fading_list", "read_fading_list", "clear", "reads_agree", "sweep")):  # type: ignore[misc]  # made above
    """Appends to the lists of two keys in one batch after the other, so that most runs have lists of several segments."""

    finish, next_batch, same_batch_again = called_only("finish"), called_only("next_batch"), called_only("same_batch_again")
    begin_snapshot, end_snapshot, restart = called_only("begin_snapshot"), called_only("end_snapshot"), called_only("restart")
    apply_pending, add_to_fading_list = called_only("apply_pending"), called_only("add_to_fading_list")
    start, prefetch = called_only("start"), None

    @initialize(
        cache_bytes=st.sampled_from([0, 2000, 1 << 20, 1 << 20]),
        dirty_bytes=st.sampled_from([1, 1 << 20, 1 << 20, 1 << 20]),
        on_read=st.booleans(),
        swept=st.booleans(),
        tail_bytes=st.sampled_from([0, 0, 40]),
    )
    def start_with_room(self, **options: Any) -> None:
        """Changes of most runs stay in memory until they are committed."""
        self.start(**options)

    @rule(
        key=st.sampled_from("ab"),
        times=st.integers(1, 3),
        read=st.sampled_from(["before", "after", "not", "not"]),
        snapshot=st.sampled_from(["begin", "go on", "go on", "end", "crash"]),
        again=st.booleans(),
        later_ms=st.sampled_from([0, 0, 1, 3]),
    )
    def append_in_a_batch(self, key: str, times: int, read: str, snapshot: str, again: bool, later_ms: int) -> None:
        """Reading fills the cache, which a batch that runs again must find unchanged."""
        if not again:
            self.slot.now_ms += later_ms
        self.turn(snapshot, again)
        if read == "before":
            self.read_lists(key)
        for number in range(times):
            self.change_list(key, [[number]], replace=False)
            self.add_to_fading_list(key, str(number))
        if read == "after":
            self.read_lists(key)

    def read_lists(self, key: str) -> None:
        """Compare both lists of a key with the model."""
        self.on_key(key)
        assert list(self.list.get()) == self.model["list"].get(key, [])
        self.read_fading_list(key)


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
    "sweep",
    "sweep_for_full_snapshot",
)
RawMachine = focused("RawMachine", "write_raw", "append_raw", "read_raw", "update_count")


class RocksDBMachine(BackendMachine):
    memory = RocksDBMemory.managed(16 << 20)

    def open_store(self, path: Path) -> KeyValueStore:
        return RocksDBStore(path, RocksDBOptions(memory=self.memory))


class SplitMachine(FrozenSnapshots):
    """Timers on the heap beside RocksDB, or in it, as it was at every second opening."""

    memory = RocksDBMemory.managed(16 << 20)
    openings = 0

    def open_store(self, path: Path) -> KeyValueStore:
        self.openings += 1
        return open_store("rocksdb", path, RocksDBOptions(memory=self.memory), heap_timers=self.openings % 3 != 0)


class SplitTimersMachine(SplitMachine):
    """Timers and little else."""


for _rule in (
    "put_into_map",
    "change_map_while_walking",
    "put_into_fading_map",
    "add_to_fading_list",
    "append_raw",
    "write_raw",
    "change_list",
):
    setattr(SplitTimersMachine, _rule, None)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is read in chunks be read in chunks of two, so that few entries reach their borders."""
    monkeypatch.setattr(map_entries, "_CHUNK_ENTRIES", 2)
    monkeypatch.setattr(timer_front, "_AHEAD_TIMERS", 2)


@pytest.mark.parametrize(
    ("machine", "examples", "steps"),
    [
        (MemoryMachine, 150, 60),
        (FrozenMachine, 60, 60),
        (HeldMachine, 150, 40),
        (TimersMachine, 200, 60),
        (MapMachine, 200, 60),
        (FadingMachine, 200, 60),
        (ListMachine, 120, 60),
        (RawMachine, 150, 60),
        (RocksDBMachine, 15, 60),
        (SplitMachine, 15, 60),
        (SplitTimersMachine, 20, 60),
    ],
)
def test_backend_behaves_as_the_model(machine: type[BackendMachine], examples: int, steps: int) -> None:
    """Whatever happens to a batch, reads, timers and the store's bytes are those of the model."""
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None))
