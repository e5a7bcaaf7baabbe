"""Broadcast state against a plain dict: every slot has the same copy, whatever is undone, retried, restored, rescaled or caught up with."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from runtime.tests.depth import examples

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.changelog import ChangelogHeader
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, SlotState
from statefulspark.checkpoint.formats.operator_state import decode_operator_file, encode_operator_file
from statefulspark.checkpoint.restore.broadcast_state import StoredBroadcastState
from statefulspark.checkpoint.restore.operator_state import StoredOperatorState
from statefulspark.checkpoint.write.upload import upload_operator_state
from statefulspark.keygroups import KeyGroupRange, key_group_range
from statefulspark.state.api.broadcast_state import BroadcastState
from statefulspark.state.api.descriptors import ListStateDescriptor, MapStateDescriptor
from statefulspark.state.operator.backend import OperatorStateBackend, StepOperatorState
from statefulspark.state.registry import StateRegistry
from statefulspark.state.types.types import Types
from statefulspark.storage.open import open_store

from .test_broadcast_state import NAMES, RULES

MAX_PARALLELISM = 8
STATES = {"rules": RULES, "names": NAMES}
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "rules": st.sampled_from(["", "a", "ab", "\u00e4"]),
    "names": st.sampled_from([-1, 0, 1, 1 << 40]),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "rules": st.none() | st.integers(-2, 2),
    "names": st.none() | st.text(max_size=2) | st.lists(st.integers(0, 2), max_size=2),
}
Model = dict[str, dict[Any, Any]]
Operation = tuple[str, str, Any, Any]


def _operations(name: str) -> st.SearchStrategy[Operation]:
    return st.tuples(st.just(name), st.sampled_from(["put", "put", "put", "remove", "clear"]), KEYS[name], VALUES[name])


OPERATIONS = st.lists(_operations("rules") | _operations("names"), max_size=5)


def apply(operation: Operation, model: Model, state: Callable[[MapStateDescriptor], BroadcastState[Any, Any]]) -> None:
    """Do it to the model and to the state."""
    name, how, key, value = operation
    broadcast, expected = state(STATES[name]), model[name]
    if how == "put":
        broadcast[key] = value
        expected[key] = value
    elif how == "remove":
        broadcast.remove(key)
        expected.pop(key, None)
    else:
        broadcast.clear()
        expected.clear()


class BroadcastMachine(RuleBasedStateMachine):
    """A job with files in storage. ``committed`` and ``running`` are the model, the same for all slots.

    The changelogs of the last batch count only once the next one begins.
    """

    @initialize(parallelism=st.integers(1, 3))
    def start(self, parallelism: int) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.storage = open_store((self.folder / "job").as_uri())
        self.registry = StateRegistry()
        self.parallelism = parallelism
        self.batch = -1
        """The last batch that ran."""
        self.base: StoredCheckpoint | None = None
        self.changelogs: list[tuple[ChangelogHeader, bytes]] = []
        self.uncommitted: dict[int, tuple[ChangelogHeader, bytes]] = {}
        self.committed: Model = {name: {} for name in STATES}
        self.model: Model = {name: {} for name in STATES}
        self.slots = [self.restored(slot) for slot in range(parallelism)]
        self.idle: dict[int, OperatorStateBackend] = {}
        """Slots that stand at an earlier batch, of which another incarnation has gone on."""

    def teardown(self) -> None:
        if hasattr(self, "temporary"):
            self.temporary.cleanup()

    # What slots do

    def opened(self, slot: int, start: StepOperatorState) -> OperatorStateBackend:
        backend = OperatorStateBackend(self.registry, uid="u", slot=slot, parallelism=self.parallelism, start=start)
        self.declare(backend)
        return backend

    @staticmethod
    def declare(backend: OperatorStateBackend) -> None:
        backend.redeclare()
        backend.broadcast.declare([RULES, NAMES])
        backend.get_list_state(ListStateDescriptor("elements", Types.LONG()))

    def replayed(self, slot: int, after: int, stored: StoredBroadcastState) -> None:
        """Read the changelogs that `replay` reads: those that share key groups with the slot, in batch order."""
        groups = key_group_range(slot, self.parallelism, MAX_PARALLELISM)
        lists = StoredOperatorState(slot=slot)
        for header, data in self.changelogs:
            if header.batch > after and KeyGroupRange(header.first_key_group, header.last_key_group).intersect(groups) is not None:
                for each in (stored, lists):
                    each.add(header, decode_operator_file(data, path="changelog"), where="changelog")

    def restored(self, slot: int) -> OperatorStateBackend:
        stored = StoredBroadcastState(slot)
        if self.base is not None:
            stored.add_checkpoint(self.base)
        self.replayed(slot, self.base.metadata.batch if self.base is not None else -1, stored)
        start = StepOperatorState(
            states=tuple(stored.states("u")), restored=True, batch=self.committed_batch, broadcast=stored.entries("u")
        )
        return self.opened(slot, start)

    @property
    def committed_batch(self) -> int:
        return self.batch - 1 if self.uncommitted else self.batch

    def run(self, slot: int, operations: list[Operation], *, epoch: int, whole: bool) -> None:
        """One batch in one slot, up to its changelog."""
        backend = self.slots[slot]
        if operations:
            model = {name: dict(entries) for name, entries in self.committed.items()}
            for operation in operations:
                apply(operation, model, backend.broadcast.state)
        entries = backend.changes(whole=whole)
        groups = key_group_range(slot, self.parallelism, MAX_PARALLELISM)
        header = ChangelogHeader(
            uid="u",
            slot=slot,
            batch=self.batch,
            epoch=epoch,
            first_key_group=groups.first,
            last_key_group=groups.last,
            states=tuple(info.to_json() for info in backend.states()),
            operator_state=("all" if whole else "changed") if entries or whole else None,
            parallelism=self.parallelism if entries or whole else None,
        )
        assert header.version == 4
        self.uncommitted[slot] = header, encode_operator_file(entries)
        backend.finish_batch()

    # Rules

    def commit(self) -> None:
        self.changelogs += [self.uncommitted[slot] for slot in sorted(self.uncommitted)]
        self.uncommitted = {}
        self.committed = {name: dict(entries) for name, entries in self.model.items()}

    @rule(
        operations=OPERATIONS,
        lives=st.lists(st.sampled_from(["once", "once", "abort", "again", "no rows"]), min_size=4, max_size=4),
        wholes=st.booleans(),
    )
    def next_batch(self, operations: list[Operation], lives: list[str], wholes: bool) -> None:
        """Rows of the broadcast stream reach every slot; without any, a slot may have no rows at all."""
        self.commit()
        self.batch += 1
        for operation in operations:
            name, how, key, value = operation
            if how == "put":
                self.model[name][key] = value
            elif how == "remove":
                self.model[name].pop(key, None)
            else:
                self.model[name].clear()
        for slot, backend in enumerate(self.slots):
            if lives[slot] == "no rows" and not operations:
                continue
            backend.begin_batch(self.batch)
            if lives[slot] == "abort":
                model = {name: dict(entries) for name, entries in self.committed.items()}
                for operation in [*operations, ("rules", "clear", "", None), ("names", "put", 0, "undone")]:
                    apply(operation, model, backend.broadcast.state)
                backend.abort_batch()
                self.check(backend, self.committed)
                self.declare(backend)
                backend.begin_batch(self.batch)
            self.run(slot, operations, epoch=1, whole=wholes)
            if lives[slot] == "again":
                self.check(backend, self.model)
                backend.begin_batch(self.batch)
                self.check(backend, self.committed)
                self.declare(backend)
                self.run(slot, operations, epoch=2, whole=wholes)

    @rule(slot=st.integers(0, 3))
    def lose_the_batch(self, slot: int) -> None:
        """The driver and a slot die before the batch is complete, so it never was: the other slots undo it, and this one restores."""
        if self.uncommitted:
            ran, self.uncommitted = set(self.uncommitted), {}
            self.model = {name: dict(entries) for name, entries in self.committed.items()}
            for number in ran:
                self.slots[number].begin_batch(self.batch)
                self.slots[number].abort_batch()
            self.batch -= 1
            self.restart(slot)

    @rule(slot=st.integers(0, 3))
    def restart(self, slot: int) -> None:
        """A slot dies between two batches. The batch that it had finished is not lost: its changelog is in storage."""
        self.commit()
        slot %= self.parallelism
        self.slots[slot] = self.restored(slot)

    @rule(slot=st.integers(0, 3))
    def replace(self, slot: int) -> None:
        """Another incarnation of a slot goes on, and the coordinator loses it later."""
        self.commit()
        slot %= self.parallelism
        if slot not in self.idle:
            self.idle[slot] = self.slots[slot]
            self.slots[slot] = self.restored(slot)

    @rule()
    def catch_up(self) -> None:
        """The first incarnation is back and applies what it has missed."""
        self.commit()
        for slot, backend in self.idle.items():
            backend.apply_pending()
            before = [(entry.state_id, entry.items) for entry in backend.broadcast.committed()]
            stored = StoredBroadcastState(slot)
            self.replayed(slot, backend.batch, stored)
            start = backend.caught_up(self.batch, {}, stored.states("u"), stored.changes("u"))
            assert [(entry.state_id, entry.items) for entry in backend.broadcast.committed()] == before, "a failure later would be half-way"
            self.slots[slot] = self.opened(slot, start)
        self.idle = {}

    @rule(parallelism=st.integers(1, 4))
    def rescale(self, parallelism: int) -> None:
        """To any number of slots, also more than before."""
        self.commit()
        self.parallelism = parallelism
        self.idle = {}
        self.slots = [self.restored(slot) for slot in range(parallelism)]

    @rule()
    def checkpoint(self) -> None:
        """Each slot writes its copy; slots whose copies are empty write nothing."""
        self.commit()
        folder = paths.checkpoint_folder(self.batch + 1)
        found = []
        for slot, backend in enumerate(self.slots):
            backend.apply_pending()
            found.append(upload_operator_state(self.storage, folder, slot, backend.broadcast.committed(), "0" * 7))
        ranges = [key_group_range(slot, self.parallelism, MAX_PARALLELISM) for slot in range(self.parallelism)]
        metadata = CheckpointMetadata(
            job_id="j",
            job_name="j",
            checkpoint_id=self.batch + 1,
            kind="checkpoint",
            attempt=1,
            batch=self.batch,
            max_parallelism=MAX_PARALLELISM,
            parallelism=self.parallelism,
            created_ms=0,
            duration_ms=0,
            states=tuple(info.to_json() for info in self.registry.states()),
            slots=tuple(SlotState(slot=slot, first=each.first, last=each.last, backend="memory") for slot, each in enumerate(ranges)),
            operator_state=tuple(file for file in found if file is not None),
        )
        self.base = StoredCheckpoint(self.storage, folder, metadata)

    # What always holds

    @staticmethod
    def check(backend: OperatorStateBackend, model: Model) -> None:
        for name, descriptor in STATES.items():
            state, expected = backend.broadcast.read_only(descriptor), model[name]
            found = list(state.items())
            assert dict(found) == expected
            assert [type(value) for _, value in found] == [type(expected[key]) for key, _ in found]
            encoded = [descriptor.type_info.key.encode(key) for key, _ in found]
            assert encoded == sorted(encoded), "the order is the same in every slot"
            assert list(state) == [key for key, _ in found]
            assert list(state.values()) == [value for _, value in found]
            assert state.is_empty() == (not expected)
            for key in expected:
                assert key in state
                assert state[key] == expected[key]

    @invariant()
    def copies_are_the_model(self) -> None:
        for backend in getattr(self, "slots", ()):
            self.check(backend, self.model)


TestBroadcastMachine = BroadcastMachine.TestCase
TestBroadcastMachine.settings = settings(max_examples=examples(50, 300), stateful_step_count=20)
