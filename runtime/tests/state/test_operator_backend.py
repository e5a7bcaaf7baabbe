"""The operator state of a slot against plain lists: through finish, abort, retry and a fresh copy of the function."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from statefulspark.errors import InvalidInputError, NotRestorableError
from statefulspark.state.api.descriptors import ListStateDescriptor, ValueStateDescriptor
from statefulspark.state.api.states import ListState
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.operator import backend as backend_module
from statefulspark.state.operator.backend import OperatorStateBackend, StepOperatorState
from statefulspark.state.operator.entries import OPERATOR_LIST, OPERATOR_UNION, lists_of
from statefulspark.state.registry import StateRegistry
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types

_NAMES = ("split", "union")
_VALUES = st.lists(st.integers(-3, 3), max_size=3)


class OperatorMachine(RuleBasedStateMachine):
    """``committed``, ``finished`` and ``running`` are the model; ``replayed`` is what applying the changes of finished batches gives."""

    @initialize()
    def start(self) -> None:
        self.registry = StateRegistry()
        self.batch = 0
        self.model: dict[str, list[int]] = {name: [] for name in _NAMES}
        self.before: dict[str, list[int]] = {name: [] for name in _NAMES}
        self.is_running = self.is_finished = False
        self.reopen(StepOperatorState())

    def reopen(self, start: StepOperatorState) -> None:
        self.backend = OperatorStateBackend(self.registry, uid="u", slot=1, parallelism=2, start=start)
        self.declare()

    def declare(self) -> None:
        descriptors = {name: ListStateDescriptor(name, Types.LONG()) for name in _NAMES}
        self.lists: dict[str, ListState[int]] = {
            "split": self.backend.get_list_state(descriptors["split"]),
            "union": self.backend.get_union_list_state(descriptors["union"]),
        }
        self.backend.initialized()

    @precondition(lambda self: not self.is_running)
    @rule()
    def next_batch(self) -> None:
        if self.is_finished:
            self.batch += 1
        self.before = {name: list(values) for name, values in self.model.items()}
        self.backend.begin_batch(self.batch)
        self.is_running, self.is_finished = True, False

    @precondition(lambda self: self.is_running)
    @rule(name=st.sampled_from(_NAMES), values=_VALUES, how=st.sampled_from(["add", "add_all", "update", "clear"]))
    def change(self, name: str, values: list[int], how: str) -> None:
        state = self.lists[name]
        if how == "update":
            state.update(values)
            self.model[name] = list(values)
        elif how == "clear":
            state.clear()
            self.model[name] = []
        elif how == "add_all":
            state.add_all(values)
            self.model[name] += values
        else:
            for value in values:
                state.add(value)
            self.model[name] += values

    @precondition(lambda self: self.is_running)
    @rule(whole=st.booleans())
    def finish(self, whole: bool) -> None:
        entries = self.backend.changes(whole=whole)
        self.backend.finish_batch()
        self.is_running, self.is_finished = False, True
        names = {info.state_id: info.name for info in self.backend.states()}
        found = {names[state_id]: elements for state_id, elements in lists_of(entries, 1, where="p").items()}
        if whole:
            assert {name for name in _NAMES if self.model[name]} <= found.keys()
        else:
            changed = {name for name in _NAMES if self.model[name] != self.before[name]}
            # A list that is declared is written once, also if it is empty.
            assert changed <= found.keys() <= changed | {name for name in _NAMES if not self.before[name]}
        assert all(len(elements) == len(self.model[name]) for name, elements in found.items())

    @precondition(lambda self: self.is_running)
    @rule(encoded=st.booleans())
    def abort(self, encoded: bool) -> None:
        if encoded:
            self.backend.changes(whole=False)
        self.backend.abort_batch()
        self.is_running = False
        self.model = {name: list(values) for name, values in self.before.items()}
        self.backend.redeclare()
        self.declare()

    @precondition(lambda self: self.is_finished)
    @rule()
    def same_batch_again(self) -> None:
        self.backend.begin_batch(self.batch)
        self.model = {name: list(values) for name, values in self.before.items()}
        self.is_running, self.is_finished = True, False

    @precondition(lambda self: self.is_finished)
    @rule()
    def commit_and_restart(self) -> None:
        self.backend.apply_pending()
        lists = lists_of(self.backend.committed(), 1, where="p")
        self.batch += 1
        self.is_finished = False
        self.reopen(StepOperatorState(lists, tuple(self.backend.states()), restored=True, batch=self.batch - 1))

    @invariant()
    def lists_are_the_model(self) -> None:
        if hasattr(self, "lists"):
            assert {name: list(state.get()) for name, state in self.lists.items()} == self.model


TestOperatorMachine = OperatorMachine.TestCase


def _backend(start: StepOperatorState | None = None, *, slot: int = 0, parallelism: int = 4, registry: StateRegistry | None = None) -> Any:
    return OperatorStateBackend(
        registry or StateRegistry(), uid="u", slot=slot, parallelism=parallelism, start=start or StepOperatorState()
    )


def test_a_snapshot_keeps_what_was_committed() -> None:
    """A commit replaces references, so entries that a checkpoint has taken do not change while it is uploaded."""
    backend = _backend()
    state = backend.get_list_state(ListStateDescriptor("x", Types.LIST(Types.LONG())))
    backend.begin_batch(0)
    state.add([1])
    backend.changes(whole=False)
    backend.finish_batch()
    backend.apply_pending()
    taken = backend.committed()
    backend.begin_batch(1)
    next(state.get()).append(5)
    state.add([2])
    backend.changes(whole=False)
    backend.finish_batch()
    backend.apply_pending()
    assert len(taken[0].items) == 1
    assert list(state.get()) == [[1], [2]]


def test_what_the_function_does_when_it_is_opened_belongs_to_the_next_batch() -> None:
    """A rollback drops it, and the fresh copy does it again."""
    backend = _backend()
    state = backend.get_list_state(ListStateDescriptor("x", Types.LONG()))
    state.add(1)
    backend.begin_batch(0)
    assert list(state.get()) == [1]
    backend.abort_batch()
    assert list(state.get()) == []


def test_a_report_is_committed_at_once() -> None:
    """A retry of the first batch finds what the function has made of its part."""
    backend = _backend()
    state = backend.get_list_state(ListStateDescriptor("x", Types.LONG()))
    state.add(1)
    assert not backend.restored
    assert [len(entry.items) for entry in backend.report()] == [1]
    assert backend.restored
    backend.begin_batch(0)
    state.add(2)
    backend.abort_batch()
    assert list(state.get()) == [1]


@pytest.mark.parametrize(("slot", "kept"), [(0, 2), (1, 0)])
def test_a_union_list_that_is_not_declared_is_left_to_slot_0(slot: int, kept: int) -> None:
    """Otherwise every slot would keep all of it, and each redistribution would multiply it."""
    registry = StateRegistry()
    old = _backend(registry=registry)
    old.get_union_list_state(ListStateDescriptor("union", Types.LONG()))
    old.get_list_state(ListStateDescriptor("split", Types.LONG()))
    union, split = (info.state_id for info in sorted(old.states(), key=lambda info: info.name != "union"))
    lists = {union: (b"\x01a", b"\x01b"), split: (b"\x01c",)}
    backend = _backend(StepOperatorState(lists, tuple(old.states()), restored=True), slot=slot, registry=registry)
    reported = lists_of(backend.report(), slot, where="p")
    assert (len(reported[union]), len(reported[split])) == (kept, 1)
    assert backend.get_registered_state_names() == {"union", "split"}


def test_a_descriptor_with_time_to_live_is_refused() -> None:
    """The message names the state and the remedy."""
    descriptor = ListStateDescriptor("x", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    with pytest.raises(
        InvalidInputError, match=r"state 'x': operator state has no time to live. Remove enable_time_to_live from its descriptor"
    ):
        _backend().get_list_state(descriptor)


def test_a_name_has_one_meaning() -> None:
    """Another kind, another type, no list, and a declaration after initialize_state are refused."""
    backend = _backend()
    descriptor = ListStateDescriptor("x", Types.LONG())
    assert backend.get_list_state(descriptor) is backend.get_list_state(descriptor)
    with pytest.raises(InvalidInputError, match="state 'x': it was declared as operator-list of LONG before"):
        backend.get_union_list_state(descriptor)
    with pytest.raises(InvalidInputError, match="Give each state its own name"):
        backend.get_list_state(ListStateDescriptor("x", Types.STRING()))
    with pytest.raises(InvalidInputError, match="Pass a ListStateDescriptor"):
        backend.get_list_state(ValueStateDescriptor("y", Types.LONG()))
    backend.initialized()
    assert backend.get_list_state(descriptor) is not None
    with pytest.raises(InvalidInputError, match=r"state 'z': it is declared too late. Declare operator state in initialize_state"):
        backend.get_list_state(ListStateDescriptor("z", Types.LONG()))
    with pytest.raises(InvalidInputError, match="state 'x' of uid 'u'"):
        backend.get_list_state(descriptor).add("no number")
    with pytest.raises(InvalidInputError, match="None cannot be added"):
        backend.get_list_state(descriptor).add(None)


def test_stored_state_of_another_kind_is_not_restored() -> None:
    """A split list does not become a union list by a changed line of code."""
    registry = StateRegistry()
    _backend(registry=registry).get_list_state(ListStateDescriptor("x", Types.LONG()))
    with pytest.raises(NotRestorableError, match="stored as operator-list, but the job declares operator-union"):
        _backend(registry=registry).get_union_list_state(ListStateDescriptor("x", Types.LONG()))


def test_a_slot_holds_its_share_of_64_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch fails with the remedy, and can be aborted."""
    monkeypatch.setattr(backend_module, "OPERATOR_STATE_BYTES_MAX", 4096)
    backend = _backend(slot=3)
    state = backend.get_list_state(ListStateDescriptor("x", Types.STRING()))
    backend.begin_batch(0)
    state.add("a" * 1000)
    backend.changes(whole=False)
    backend.finish_batch()
    backend.begin_batch(1)
    state.add("b" * 1000)
    with pytest.raises(
        InvalidInputError,
        match=r"state 'x' of uid 'u': the operator state of slot 3 has .*Ki, and each of the 4 slots may hold 1Ki. In snap",
    ):
        backend.changes(whole=False)
    backend.abort_batch()
    assert list(state.get()) == ["a" * 1000]


def test_a_split_list_that_redistribution_made_too_large_may_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept, also while other lists change; a union list has no such right."""
    monkeypatch.setattr(backend_module, "OPERATOR_STATE_BYTES_MAX", 4096)
    registry = StateRegistry()
    old = _backend(registry=registry, parallelism=1)
    old.get_list_state(ListStateDescriptor("split", Types.STRING()))
    old.get_union_list_state(ListStateDescriptor("union", Types.STRING()))
    ids = {info.name: info.state_id for info in old.states()}
    large = tuple(b"\x01" + bytes([97 + number]) * 1000 for number in range(3))
    start = StepOperatorState({ids["split"]: large, ids["union"]: ()}, tuple(old.states()), restored=True)
    backend = _backend(start, registry=registry)
    split = backend.get_list_state(ListStateDescriptor("split", Types.STRING()))
    union = backend.get_union_list_state(ListStateDescriptor("union", Types.STRING()))
    backend.report()
    backend.begin_batch(0)
    union.add("small")
    backend.changes(whole=True)
    split.update(list(split.get())[:2])
    backend.changes(whole=True)
    split.add_all(["c" * 1000, "d"])
    with pytest.raises(InvalidInputError, match="state 'split'"):
        backend.changes(whole=True)
    split.update([])
    union.update(["u" * 1100])
    with pytest.raises(InvalidInputError, match="state 'union'"):
        backend.changes(whole=True)


@pytest.mark.parametrize("kind", [OPERATOR_LIST, OPERATOR_UNION])
def test_a_list_that_nobody_declares_does_not_keep_a_job_from_starting(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Slot 0 has all of a union list, which was within the limits of the slots that wrote it. What the function writes has all of the limit."""
    monkeypatch.setattr(backend_module, "OPERATOR_STATE_BYTES_MAX", 4096)
    registry = StateRegistry()
    old = _backend(registry=registry, parallelism=4)
    dropped = ListStateDescriptor("dropped", Types.STRING())
    _ = old.get_list_state(dropped) if kind == OPERATOR_LIST else old.get_union_list_state(dropped)
    (info,) = old.states()
    large = tuple(b"\x01" + bytes([97 + number]) * 1000 for number in range(4))
    backend = _backend(StepOperatorState({info.state_id: large}, (info,), restored=True), registry=registry)
    declared = backend.get_list_state(ListStateDescriptor("declared", Types.STRING()))
    assert lists_of(backend.report(), 0, where="")[info.state_id] == large
    backend.begin_batch(0)
    declared.add("a" * 1000)
    assert lists_of(backend.changes(whole=True), 0, where="")[info.state_id] == large
    declared.add("b" * 1000)
    with pytest.raises(InvalidInputError, match=r"state 'declared'.*has 1\.96Ki, and each of the 4 slots may hold 1Ki"):
        backend.changes(whole=True)
