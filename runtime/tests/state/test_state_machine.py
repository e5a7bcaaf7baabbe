"""The backend against a model of plain dicts, over batches that finish, abort, are retried, spill, evict and survive a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from statefulspark.state import timers
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.memory_store import MemoryStore
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore
from statefulspark.state.tables import maps

from .raw_rules import RawRules
from .state_rules import ExpiryRules, StateRules, TimerRules


class BackendMachine(StateRules, ExpiryRules, TimerRules, RawRules):
    """All rules."""


class MemoryMachine(BackendMachine):
    def open_store(self, path: Path) -> KeyValueStore:
        return MemoryStore(path)


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
        (RawMachine, 150, 60),
        (RocksDBMachine, 15, 60),
    ],
)
def test_backend_behaves_as_the_model(machine: type[BackendMachine], examples: int, steps: int) -> None:
    """Whatever happens to a batch, reads, timers and the store's bytes are those of the model."""
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None))
