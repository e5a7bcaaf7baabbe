"""Which types may follow a stored one, what becomes of the values, and what a refusal says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import InvalidInputError, NotRestorableError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.evolution.compatibility import WIDER, compare
from statefulspark.state.evolution.conversions import converter
from statefulspark.state.evolution.histories import evolved
from statefulspark.state.types.types import TypeInformation, Types, type_from_json

from .evolving_types import SCALARS, WIDENINGS, UnfitError, broken, successors, types, values


@given(st.data())
def test_compatible_types(data: st.DataObject) -> None:
    """Every successor is accepted, values become what the oracle says, and the conversion gives what the declared type stores."""
    stored = data.draw(types())
    successor = data.draw(successors(stored))
    found = compare(stored.to_json(), successor.type.to_json())
    assert found.problem is None
    assert found.same == (stored == successor.type)
    value = data.draw(values(stored))
    converted = converter(stored, successor.type)(value)
    assert repr(converted) == repr(successor.convert(value))
    assert repr(successor.type.decode(successor.type.encode(converted))) == repr(converted)
    assert converter(stored, successor.type)(None) is None


@given(st.data())
def test_the_way_back(data: st.DataObject) -> None:
    """A declaration may return to a type that the state had; a value that does not fit raises, and no other one does."""
    stored = data.draw(types())
    successor = data.draw(successors(stored))
    history = [stored.to_json(), successor.type.to_json()]
    found = compare(successor.type.to_json(), stored.to_json(), history)
    if successor.back is None:
        assert found.problem is not None
        assert found.problem.problem == "elements may be None"
        return
    assert found.problem is None
    value = data.draw(values(successor.type))
    back = converter(successor.type, stored)
    try:
        expected = repr(successor.back(value))
    except UnfitError:
        with pytest.raises(InvalidInputError, match=r"does not fit .*, to which the declaration returned"):
            back(value)
    else:
        assert repr(back(value)) == expected


@given(st.data())
def test_incompatible_types(data: st.DataObject) -> None:
    """Every other change is refused, and the refusal names the part that differs."""
    stored = data.draw(types())
    declared, path = data.draw(broken(stored))
    found = compare(stored.to_json(), declared.to_json())
    assert found.problem is not None
    assert found.problem.path == path


def test_every_pair_of_scalars() -> None:
    """Only the documented widenings are accepted; to narrow is a return."""
    for name, (stored, _) in SCALARS.items():
        for other, (declared, _) in SCALARS.items():
            ok = compare(stored.to_json(), declared.to_json()).problem is None
            assert ok == (name == other or f"{name} {other}" in WIDENINGS), (name, other)
    assert sum(map(len, WIDER.values())) == len(WIDENINGS)


def test_defaults_are_no_difference() -> None:
    """Neither a new default nor one that is gone migrates anything; the description keeps it."""
    plain = Types.ROW_NAMED(["a"], [Types.LONG()])
    with_default = Types.ROW_NAMED(["a"], [Types.LONG()], defaults={"a": 7})
    assert compare(plain.to_json(), with_default.to_json()).same
    assert compare(with_default.to_json(), plain.to_json()).same
    assert type_from_json(with_default.to_json()) == with_default != plain


@pytest.mark.parametrize(
    ("defaults", "said"),
    [({"b": 1}, "the row has no such field"), ({"a": "text"}, r"expected int for Types.LONG\(\), got str")],
)
def test_defaults_of_no_field_or_another_type(defaults: dict[str, Any], said: str) -> None:
    """Refused where they are declared, by the name of the field."""
    with pytest.raises(InvalidInputError, match=said) as raised:
        Types.ROW_NAMED(["a"], [Types.LONG()], defaults=defaults)
    assert raised.value.field in ("defaults['a']", "defaults['b']")


def _refusal(stored: TypeInformation, declared: TypeInformation, **options: Any) -> str:
    def info(type_: TypeInformation) -> StateInfo:
        return StateInfo(1, "orders", "cart", options.get("kind", "value"), [], type_.to_json())

    with pytest.raises(NotRestorableError) as raised:
        evolved(info(stored), info(declared), since_ms=0, may_rename=False)
    return str(raised.value)


def test_a_refusal_shows_both_types_side_by_side() -> None:
    """As the documentation shows it."""
    stored = Types.ROW_NAMED(["sku", "count"], [Types.STRING(), Types.LONG()])
    declared = Types.ROW_NAMED(["sku", "count"], [Types.STRING(), Types.INT()])
    assert _refusal(stored, declared) == (
        "state 'cart' of uid 'orders': the stored type does not fit the declared one\n"
        "  stored           declared\n"
        "  ROW_NAMED        ROW_NAMED\n"
        "    sku    STRING    sku    STRING\n"
        "    count  LONG      count  INT     narrower\n"
        "Declare count as LONG, or use a new state name"
    )


def test_a_probable_renaming_is_refused() -> None:
    """Unless state may be left behind, or the state had the type before."""
    stored, declared = Types.ROW_NAMED(["price"], [Types.LONG()]), Types.ROW_NAMED(["cost"], [Types.LONG()])
    text = _refusal(Types.LIST(stored), Types.LIST(declared), kind="list")
    assert text.splitlines()[1:-1] == [
        "  stored                declared",
        "  LIST                  LIST",
        "    element  ROW_NAMED    element  ROW_NAMED",
        "                            cost   LONG       renamed?",
        "      price  LONG                             renamed?",
    ]
    assert "remove and add them in two upgrades, or set spec.allowNonRestoredState" in text
    before, after = stored.to_json(), declared.to_json()
    assert compare(before, after, may_rename=True).removed == ["price"]
    assert compare(before, after, [after, before]).problem is None


def test_keys_of_map_states_never_change() -> None:
    """Not even to a wider number: they are part of store keys. A map in a value may."""
    stored, declared = Types.MAP(Types.INT(), Types.LONG()), Types.MAP(Types.LONG(), Types.LONG())
    assert "key    INT     key    LONG  keys cannot change" in _refusal(stored, declared, kind="map")
    assert compare(stored.to_json(), declared.to_json()).problem is None
