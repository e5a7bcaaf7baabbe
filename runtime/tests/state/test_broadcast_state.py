"""Broadcast state of one slot: what a batch changes and writes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from statefulspark.checkpoint.formats.changelog import ChangelogHeader
from statefulspark.checkpoint.restore.broadcast_state import StoredBroadcastState
from statefulspark.errors import InvalidInputError, NotRestorableError
from statefulspark.state.api.broadcast_state import BroadcastState
from statefulspark.state.api.descriptors import ListStateDescriptor, MapStateDescriptor
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.operator import broadcast as broadcast_module
from statefulspark.state.operator.backend import OperatorStateBackend, StepOperatorState
from statefulspark.state.registry import StateRegistry
from statefulspark.state.times import Time
from statefulspark.state.types.types import Types

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
NAMES = MapStateDescriptor("names", Types.LONG(), Types.PICKLED_BYTE_ARRAY())


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
