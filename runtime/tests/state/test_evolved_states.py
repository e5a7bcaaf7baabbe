"""State evolution case by case; `test_evolution_machine` has the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.errors import CorruptDataError, InvalidInputError, NotRestorableError
from statefulspark.state.api.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor, ValueStateDescriptor
from statefulspark.state.api.ttl import StateTtlConfig
from statefulspark.state.backend import BatchBudget
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.evolution.histories import longer
from statefulspark.state.evolution.schema_reader import SchemaReader
from statefulspark.state.registry import StateRegistry
from statefulspark.state.row import Row
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.times import Time
from statefulspark.state.types.pickled import Pickled
from statefulspark.state.types.types import Types
from statefulspark.testing.keyed_state import LETTER_GROUPS, KeyedSlot, key_group

AB = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()], defaults={"b": 7})
A = Types.ROW_NAMED(["a"], [Types.LONG()])
LONG, STRING = {"type": "LONG"}, {"type": "STRING"}


def _ttl(descriptor: StateDescriptor, ttl_ms: int | None) -> Any:
    if ttl_ms is not None:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(ttl_ms)).cleanup_full_snapshot().build())
    return descriptor


@pytest.fixture
def upgraded(tmp_path: Path) -> Callable[[KeyedSlot], KeyedSlot]:
    """Return a slot over the same store in the next attempt of the job."""

    def upgrade(slot: KeyedSlot) -> KeyedSlot:
        slot.backend.apply_pending()
        restored = StateRegistry(slot.registry.states(), reached_ms=slot.now_ms)
        again = KeyedSlot(slot.store, tmp_path, BatchBudget(), restored, key_groups=LETTER_GROUPS)
        again.now_ms = slot.now_ms
        again.backend.batch = slot.backend.batch
        return again

    return upgrade


@pytest.fixture
def slot(tmp_path: Path) -> KeyedSlot:
    return KeyedSlot(HeapStore(), tmp_path, BatchBudget(), key_groups=LETTER_GROUPS)


def test_a_field_that_was_removed_and_added_again(slot: KeyedSlot, upgraded: Callable[[KeyedSlot], KeyedSlot]) -> None:
    """It has its default, whether the entry was loaded in the meantime or not."""
    state = slot.backend.value_state(ValueStateDescriptor("s", AB))
    for key in ("x", "y"):
        with slot.batch(key):
            state.update(Row(a=1, b=2))
    slot = upgraded(slot)
    state = slot.backend.value_state(ValueStateDescriptor("s", A))
    with slot.batch("x"):
        state.update(state.value())
    slot = upgraded(slot)
    state = slot.backend.value_state(ValueStateDescriptor("s", AB))
    for key in ("x", "y"):
        with slot.batch(key):
            assert state.value() == Row(a=1, b=7)


def test_what_had_expired_does_not_come_back(slot: KeyedSlot, upgraded: Callable[[KeyedSlot], KeyedSlot]) -> None:
    """Once time to live is off, iterating shows what was alive then; the sweep deletes the rest."""
    state = slot.backend.map_state(_ttl(MapStateDescriptor("s", Types.STRING(), Types.LONG()), 10))
    with slot.batch("x"):
        state.put("old", 1)
    slot.now_ms += 6
    with slot.batch("x"):
        state.put("new", 2)
    slot.now_ms += 5
    with slot.batch("x"):
        pass
    slot = upgraded(slot)
    state = slot.backend.map_state(MapStateDescriptor("s", Types.STRING(), Types.LONG()))
    slot.now_ms += 100
    with slot.batch("x"):
        assert dict(state.items()) == {"new": 2}
        assert list(state.keys()) == ["new"]
    slot.backend.apply_pending()
    assert len(slot.entries()) == 2
    for _ in range(3):
        slot.now_ms += 10
        with slot.batch("y"):
            pass
        slot.backend.apply_pending()
        while slot.backend.sweep():
            pass
    assert len(slot.entries()) == 1


def test_a_value_that_no_longer_fits(slot: KeyedSlot, upgraded: Callable[[KeyedSlot], KeyedSlot]) -> None:
    """It fails the batch with the state and both types, not as damage: an older checkpoint would not help. Others are read."""
    state = slot.backend.value_state(ValueStateDescriptor("s", Types.INT()))
    slot = upgraded(slot)
    state = slot.backend.value_state(ValueStateDescriptor("s", Types.LONG()))
    for key, value in (("x", 1 << 40), ("y", 5)):
        with slot.batch(key):
            state.update(value)
    slot = upgraded(slot)
    state = slot.backend.value_state(ValueStateDescriptor("s", Types.INT()))
    slot.begin()
    slot.key("y")
    assert state.value() == 5
    slot.key("x")
    with pytest.raises(InvalidInputError) as raised:
        state.value()
    assert str(raised.value) == (
        "state 's' of uid 'step': a value of type LONG does not fit INT, to which the declaration returned. "
        "Declare LONG, or restore a savepoint from before the upgrade"
    )


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_an_object_whose_class_is_gone(slot: KeyedSlot, upgraded: Callable[[KeyedSlot], KeyedSlot], kind: str) -> None:
    """The error names state and class and says what to do, instead of calling it damage."""
    module = ModuleType("shop_cart")
    exec("class Cart:\n    pass", module.__dict__)  # a module that can go away again
    sys.modules["shop_cart"] = module
    descriptors: dict[str, StateDescriptor] = {
        "value": ValueStateDescriptor("s", Types.PICKLED_BYTE_ARRAY()),
        "list": ListStateDescriptor("s", Types.PICKLED_BYTE_ARRAY()),
        "map": MapStateDescriptor("s", Types.PICKLED_BYTE_ARRAY(), Types.LONG()),
    }

    def declared(slot: KeyedSlot) -> Any:
        return getattr(slot.backend, f"{kind}_state")(descriptors[kind])

    try:
        state = declared(slot)
        with slot.batch("x"):
            cart = module.Cart()
            {"value": lambda: state.update(cart), "list": lambda: state.add(cart), "map": lambda: state.put(cart, 1)}[kind]()
    finally:
        del sys.modules["shop_cart"]
    slot = upgraded(slot)
    state = declared(slot)
    slot.begin()
    slot.key("x")
    with pytest.raises(
        InvalidInputError, match=r"state 's' of uid 'step': a stored object cannot be unpickled \(ModuleNotFoundError: shop_cart\.\w+\)"
    ):
        state.value() if kind == "value" else list(state.get() if kind == "list" else state.keys())


def _info(*types: dict[str, Any], ttls: tuple[int | None, ...] = (), since_ms: int = 5) -> StateInfo:
    registry = StateRegistry()
    for type_, ttl_ms in zip(types, ttls or (None,) * len(types), strict=True):
        registry = StateRegistry(registry.states(), reached_ms=since_ms)
        registry.register("u", "s", "value", {"key_type": [], "type": type_, "ttl_ms": ttl_ms})
    return registry.states()[0]


BYTE, SHORT, INT = {"type": "BYTE"}, {"type": "SHORT"}, {"type": "INT"}


def test_a_description_keeps_its_form_until_it_evolves() -> None:
    """So savepoints of jobs that have not evolved stay readable by older releases; the length of time to live and defaults append nothing."""
    assert "schemas" not in _info(INT, INT, ttls=(5, 6)).to_json()
    assert "schemas" not in _info(A.to_json(), Types.ROW_NAMED(["a"], [Types.LONG()], defaults={"a": 1}).to_json()).to_json()
    evolved = _info(INT, LONG)
    assert evolved.to_json()["schemas"] == [{"type": INT, "ttl_ms": None, "since_ms": 0}, {"type": LONG, "ttl_ms": None, "since_ms": 5}]
    assert StateInfo.from_json(evolved.to_json()) == evolved


@pytest.mark.parametrize(
    ("types", "version"), [((INT,), 1), ((INT, LONG), 5), ((AB.to_json(),), 5), (({"type": "LIST", "element": AB.to_json()},), 5)]
)
def test_the_version_of_a_checkpoint(types: tuple[dict[str, Any], ...], version: int) -> None:
    """Releases that do not know schemas or defaults refuse the document, instead of reading values as of another type."""
    fields: dict[str, Any] = {"states": (_info(*types).to_json(),), "slots": ()}
    assert CheckpointMetadata.model_construct(**fields).least_version() == version


def test_the_longer_history_counts() -> None:
    """A slot without rows has an older changelog, whose header knows less; histories that fork are not merged."""
    one, two, three = _info(SHORT), _info(SHORT, INT), _info(SHORT, INT, LONG)
    for short, long in ((one, two), (two, three), (one, three), (two, two)):
        assert longer(short, long) == longer(long, short) == long
    for other in (_info(SHORT, LONG), _info(SHORT, INT, since_ms=6), _info(BYTE, INT), _info(BYTE)):
        assert longer(two, other) is None


def test_another_attempts_schemas_are_taken_over_before_the_first_declaration_only() -> None:
    """The tables of this attempt are made once, so they could not read what the other attempt wrote."""
    old, new = _info(SHORT), _info(SHORT, INT)
    registry = StateRegistry([old])
    assert registry.take_over([new])
    assert registry.states() == [new]
    assert registry.take_over([old])
    assert registry.states() == [new]
    registry = StateRegistry([old])
    registry.register("u", "s", "value", {"key_type": [], "type": SHORT, "ttl_ms": None})
    assert not registry.take_over([new])
    assert registry.states() == [old]


def test_slots_of_one_attempt_declare_the_same() -> None:
    """Otherwise each slot would undo what the other declares."""
    registry = StateRegistry([_info(SHORT)])
    registry.register("u", "s", "value", {"key_type": [], "type": INT, "ttl_ms": None})
    registry.register("u", "s", "value", {"key_type": [], "type": INT, "ttl_ms": None})
    assert len(registry.states()[0].schemas) == 2
    for description in ({"type": LONG, "ttl_ms": None}, {"type": INT, "ttl_ms": 5}):
        with pytest.raises(NotRestorableError, match="elsewhere in the job as INT with no time to live"):
            registry.register("u", "s", "value", {"key_type": [], **description})


def test_what_a_window_remembers_is_no_declaration() -> None:
    """Slots that remove a window's state by what the window remembers neither undo what others declare, nor stand in its way."""

    def described(value: dict[str, Any], *, remembered: bool = False) -> dict[str, Any]:
        return {"key_type": [], "type": {"type": "MAP", "key": LONG, "value": value}, "ttl_ms": None} | (
            {"remembered": True} if remembered else {}
        )

    state = "u", "_window.trigger(s)", "map"
    registry = StateRegistry()
    old = registry.register(*state, described(INT))
    registry = StateRegistry([old])
    assert registry.register(*state, described(INT, remembered=True)) == old
    new = registry.register(*state, described(LONG))
    assert [schema.type["value"] for schema in new.schemas] == [INT, LONG]
    assert registry.register(*state, described(INT, remembered=True)) == new
    assert registry.register(*state, described(LONG)) == new
    registry = StateRegistry([old])
    registry.register(*state, described(INT, remembered=True))
    assert not registry.take_over([new]), "its table is made, and could not read what the other attempt wrote"


@pytest.mark.parametrize(
    "stored", [b"", b"\x07", b"\x07\x00\x01", b"\x07\x00\x00\x01\x05", b"\x07\x00\x02\x01\x05", b"\x02\x05", b"\x01", b"\x05\x01"]
)
def test_damaged_values(stored: bytes) -> None:
    """Whatever is cut short or names a schema that does not exist is refused."""
    with pytest.raises(CorruptDataError):
        SchemaReader(_info(SHORT, INT)).current(stored)


def test_a_number_that_does_not_fit_fails_only_functions_that_read_it(slot: KeyedSlot, upgraded: Callable[[KeyedSlot], KeyedSlot]) -> None:
    """After a rollback: reading ahead does not fail, and the value can be replaced or cleared, also in a map."""

    def declared(slot: KeyedSlot, type_: Any) -> tuple[Any, Any]:
        backend = slot.backend
        return backend.value_state(ValueStateDescriptor("s", type_)), backend.map_state(MapStateDescriptor("m", Types.STRING(), type_))

    declared(slot, Types.INT())
    slot = upgraded(slot)
    value, by_name = declared(slot, Types.LONG())
    for key in ("x", "y", "z"):
        with slot.batch(key):
            value.update(2**40)
            by_name.put("a", 2**40)
    slot = upgraded(slot)
    value, by_name = declared(slot, Types.INT())
    with slot.batch("x"):
        slot.backend.prefetch(slot.backend.idents.of_all([(key_group(key), key.encode()) for key in ("x", "y", "z")]))
        with pytest.raises(InvalidInputError, match=r"state 's' of uid 'step': .* does not fit INT"):
            value.value()
        with pytest.raises(InvalidInputError, match=r"state 'm' of uid 'step': .* does not fit INT"):
            by_name.get("a")
        with pytest.raises(InvalidInputError, match=r"state 'm' of uid 'step': .* does not fit INT"):
            list(by_name.items())
        assert list(by_name.keys()) == ["a"]
        assert not by_name.is_empty()
        by_name.clear()
        value.update(1)
    with slot.batch("y"):
        value.clear()
        by_name.put("a", 2)
    with slot.batch("x"):
        assert (value.value(), by_name.is_empty()) == (1, True)
        slot.key("y")
        assert (value.value(), by_name.get("a")) == (None, 2)


class Fussy:
    """Does not take what was stored."""

    def __setstate__(self, state: object) -> None:
        raise AttributeError("secret")


def test_an_error_of_a_pickled_class_is_not_taken_for_a_missing_one() -> None:
    """And a class that its module no longer has is named; the exception's own text is not shown."""
    fussy = Fussy()
    fussy.__dict__["kept"] = 1
    stored = Pickled().encode(fussy)
    with pytest.raises(InvalidInputError, match=r"its class raised an AttributeError\. Let __setstate__ accept") as refused:
        Pickled().decode(stored)
    assert "secret" not in str(refused.value)
    gone = stored.replace(b"Fussy", b"Funny")
    with pytest.raises(InvalidInputError, match=r"\(AttributeError: .*test_evolved_states\.Funny\)\. Make its class importable"):
        Pickled().decode(gone)
