"""Broadcast state against a plain dict: every slot has the same copy, whatever is undone, retried, restored, rescaled or caught up with."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.changelog import ChangelogHeader
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, SlotState
from statefulspark.checkpoint.formats.operator_state import decode_operator_file, encode_operator_file
from statefulspark.checkpoint.restore.broadcast_state import StoredBroadcastState
from statefulspark.checkpoint.restore.operator_state import StoredOperatorState
from statefulspark.checkpoint.write.upload import upload_operator_state
from statefulspark.errors import InvalidInputError, NotRestorableError
from statefulspark.keygroups import KeyGroupRange, key_group_range
from statefulspark.state.api.broadcast_state import BroadcastState
from statefulspark.state.api.descriptors import ListStateDescriptor, MapStateDescriptor
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.operator import broadcast as broadcast_module
from statefulspark.state.operator.backend import OperatorStateBackend, StepOperatorState
from statefulspark.state.registry import StateRegistry
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types
from statefulspark.storage.open import open_store

MAX_PARALLELISM = 8
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
NAMES = MapStateDescriptor("names", Types.LONG(), Types.PICKLED_BYTE_ARRAY())
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
            found.append(upload_operator_state(self.storage, folder, slot, backend.broadcast.committed()))
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
TestBroadcastMachine.settings = settings(max_examples=150, stateful_step_count=20)


def _backend(start: StepOperatorState | None = None, registry: StateRegistry | None = None) -> OperatorStateBackend:
    return OperatorStateBackend(registry or StateRegistry(), uid="u", slot=0, parallelism=4, start=start or StepOperatorState())


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_changelogs_of_any_slot_will_do(slot: int) -> None:
    """A slot that did not exist applies the changes of each batch that another one wrote, and of several changelogs of a batch those of one."""
    backend = _backend()
    rules = _rules(backend)
    stored, changelogs = StoredBroadcastState(slot), []
    for batch, value in enumerate((1, 2)):
        rules["a"] = value
        del rules[f"b{batch - 1}"]
        rules[f"b{batch}"] = 0
        changelogs.append(backend.changes(whole=False))
        backend.finish_batch()
        backend.begin_batch(batch + 1)
    states = tuple(info.to_json() for info in backend.states())
    for batch, entries in enumerate(changelogs):
        for writer in range(2):
            header = ChangelogHeader(
                uid="u",
                slot=writer,
                batch=batch,
                epoch=1,
                first_key_group=4 * writer,
                last_key_group=4 * writer + 3,
                states=states,
                operator_state="changed",
                parallelism=2,
            )
            stored.add(header, entries, where="changelog")
    (held,) = stored.entries("u").values()
    assert held == {b"a": b"\x01" + (2).to_bytes(8, "big"), b"b1": b"\x01" + bytes(8)}


def _rules(backend: OperatorStateBackend) -> BroadcastState[Any, Any]:
    backend.broadcast.declare([RULES])
    backend.begin_batch(backend.batch + 1)
    return backend.broadcast.state(RULES)


def test_a_batch_writes_what_it_changed() -> None:
    """Not what it set to what was there, nor what it added and removed; and an idle batch writes nothing."""
    backend = _backend()
    rules = _rules(backend)
    rules.put_all({"a": 1, "b": 2})
    assert [len(entry.items) for entry in backend.changes(whole=False)] == [2]
    backend.finish_batch()
    backend.begin_batch(1)
    rules["a"] = 1
    rules["c"] = 3
    del rules["c"]
    rules["b"] = 7
    rules["b"] = 2
    assert backend.changes(whole=False) == []
    rules["b"] = 3
    del rules["a"]
    assert [dict(entry.items) for entry in backend.changes(whole=True)] == [{b"a": None, b"b": b"\x01" + (3).to_bytes(8, "big")}]


def test_what_was_read_can_be_changed_without_changing_the_state() -> None:
    """Every read of a mutable value gives a copy."""
    backend = _backend()
    backend.broadcast.declare([NAMES])
    backend.begin_batch(0)
    names = backend.broadcast.state(NAMES)
    given = ["a"]
    names[1] = given
    given.append("b")
    read: Any = names[1]
    read.append("c")
    next(names.values()).append("d")
    assert names[1] == ["a"]


def test_entries_may_be_changed_while_iterating() -> None:
    """Removed ones are not seen any more."""
    rules = _rules(_backend())
    rules.put_all({"a": 1, "b": 2, "c": 3})
    seen = []
    for key in rules:
        seen.append(key)
        rules[key + "!"] = 0
        del rules["b"]
    assert seen == ["a", "c"]
    assert list(rules) == ["a", "a!", "c", "c!"]


def test_a_slot_holds_64_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all broadcast states of the step together. What would be too large is not kept, whatever the function does with the error."""
    monkeypatch.setattr(broadcast_module, "BROADCAST_STATE_BYTES_MAX", 2000)
    backend = _backend()
    backend.broadcast.declare([RULES, NAMES])
    backend.begin_batch(0)
    rules, names = backend.broadcast.state(RULES), backend.broadcast.state(NAMES)
    names[1] = "x" * 1000
    rules["r" * 900] = 1
    with pytest.raises(
        InvalidInputError,
        match=r"state 'names' of uid 'u': the broadcast state of a slot would have 2Ki; at most 1\.95Ki are supported. Key the stream",
    ):
        names[2] = "y" * 80
    names[1] = "x" * 1000
    assert list(names) == [1]
    del rules["r" * 900]
    names[2] = "y" * 80
    backend.abort_batch()
    backend.begin_batch(0)
    names[3] = "z" * 1900


def test_what_is_no_longer_declared_leaves_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """No function could clear it. It is kept, and counts again when it is declared again."""
    monkeypatch.setattr(broadcast_module, "BROADCAST_STATE_BYTES_MAX", 1000)
    backend = _backend()
    backend.broadcast.declare([RULES, NAMES])
    backend.begin_batch(0)
    backend.broadcast.state(RULES)["r" * 900] = 1
    backend.broadcast.declare([NAMES])
    names = backend.broadcast.state(NAMES)
    names[1] = "x" * 900
    with pytest.raises(InvalidInputError, match=r"at most 0\.98Ki are supported"):
        names[2] = "y" * 100
    backend.broadcast.declare([RULES, NAMES])
    names = backend.broadcast.state(NAMES)
    with pytest.raises(InvalidInputError, match=r"at most 0\.98Ki are supported"):
        names[2] = "y"
    backend.broadcast.state(RULES).clear()
    names[2] = "y"
    assert list(names) == [1, 2]


def _refusals() -> Iterator[tuple[str, Any, str]]:
    expiring = MapStateDescriptor("x", Types.STRING(), Types.LONG())
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    yield "no map", [ListStateDescriptor("x", Types.LONG())], "state 'x': broadcast state is a map. Pass a MapStateDescriptor"
    yield "time to live", [expiring], "state 'x': broadcast state has no time to live. Remove enable_time_to_live"
    yield "twice", [RULES, RULES], "state 'rules': two broadcast states have this name. Give each state its own name"
    yield "reserved", [MapStateDescriptor("_raw_operator", Types.STRING(), Types.LONG())], "the name is reserved. Choose another name"


@pytest.mark.parametrize(("descriptors", "message"), [pytest.param(*each[1:], id=each[0]) for each in _refusals()])
def test_what_cannot_be_declared(descriptors: Any, message: str) -> None:
    """The message names the state and the remedy."""
    with pytest.raises(InvalidInputError, match=message):
        _backend().broadcast.declare(descriptors)


def test_a_state_that_was_not_declared_is_refused() -> None:
    """By its name, or as another type; a fresh copy of the function declares again."""
    backend = _backend()
    with pytest.raises(InvalidInputError, match=r"the step 'u' has no broadcast state of this name. Pass its descriptor to job.broadcast"):
        backend.broadcast.state(RULES)
    backend.broadcast.declare([RULES])
    same = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
    assert backend.broadcast.read_only(same) is backend.broadcast.read_only(RULES)
    other = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
    with pytest.raises(InvalidInputError, match=r"state 'rules': it was declared as .*, not as .*. Use the descriptor"):
        backend.broadcast.state(other)
    backend.broadcast.declare([NAMES])
    with pytest.raises(InvalidInputError, match="no broadcast state of this name"):
        backend.broadcast.read_only(RULES)


def test_only_rows_of_the_broadcast_stream_change_it() -> None:
    """Not a read-only state, nor one that the function has kept, between batches or while other rows are processed."""
    backend = _backend()
    rules = _rules(backend)
    rules["a"] = 1
    message = r"state 'rules' of uid 'u': it can be changed in process_broadcast_element only. Send the change as a row"
    with pytest.raises(InvalidInputError, match=message):
        backend.broadcast.read_only(RULES).clear()
    backend.broadcast.writable = False
    changes: list[Callable[[], None]] = [lambda: rules.put("b", 1), lambda: rules.remove("a"), rules.clear]
    for change in changes:
        with pytest.raises(InvalidInputError, match=message):
            change()
    backend.broadcast.writable = True
    backend.changes(whole=False)
    backend.finish_batch()
    with pytest.raises(InvalidInputError, match=message):
        rules["b"] = 1
    assert dict(backend.broadcast.read_only(RULES).items()) == {"a": 1}


@pytest.mark.parametrize(("key", "value", "field"), [(1, 1, "map key of state 'rules'"), ("a", "no number", "state 'rules' of uid 'u'")])
def test_what_does_not_fit_the_type_is_refused(key: Any, value: Any, field: str) -> None:
    """The message names the state, and nothing has changed."""
    rules = _rules(_backend())
    with pytest.raises(InvalidInputError, match=field):
        rules.put(key, value)
    assert rules.is_empty()


def test_broadcast_state_does_not_become_keyed_state_or_a_list() -> None:
    """By a changed line of code; nor the other way round."""
    registry = StateRegistry()
    _backend(registry=registry).broadcast.declare([RULES])
    with pytest.raises(NotRestorableError, match="stored as operator-broadcast, but the job declares operator-list"):
        _backend(registry=registry).get_list_state(ListStateDescriptor("rules", Types.LONG()))


def test_values_evolve_and_keys_do_not() -> None:
    """Entries that were stored with a narrower type are read as the wider one, beside new ones; what is not declared any more stays."""
    narrow = MapStateDescriptor("rules", Types.STRING(), Types.INT())
    registry = StateRegistry()
    old = _backend(registry=registry)
    old.broadcast.declare([narrow, NAMES])
    old.begin_batch(0)
    old.broadcast.state(narrow).put_all({"a": 1, "none": None})
    old.broadcast.state(NAMES)[1] = "kept"
    old.changes(whole=False)
    old.finish_batch()
    old.apply_pending()
    start = old.caught_up(0, {}, (), {})
    registry = StateRegistry(registry.states())
    new = _backend(start, registry)
    with pytest.raises(NotRestorableError, match="keys cannot change"):
        _backend(start, StateRegistry(registry.states())).broadcast.declare([MapStateDescriptor("rules", Types.LONG(), Types.INT())])
    new.broadcast.declare([RULES])
    new.begin_batch(1)
    rules = new.broadcast.state(RULES)
    assert dict(rules.items()) == {"a": 1, "none": None}
    rules["b"] = 1 << 40
    assert [entry.state_id for entry in new.changes(whole=False)] == [new.states()[0].state_id]
    new.finish_batch()
    new.apply_pending()
    assert dict(rules.items()) == {"a": 1, "b": 1 << 40, "none": None}
    assert len(new.committed()) == 2, "the state that is not declared is kept"
