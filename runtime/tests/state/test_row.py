"""Row and RowKind behave as PyFlink's."""

from __future__ import annotations

import pickle

import pytest

from statefulspark import Row, RowKind
from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.values import ValueCodec
from statefulspark.state.row import _named
from statefulspark.state.types.types import TypeInformation, Types

UNNAMED = Types.ROW([Types.STRING(), Types.LONG()])
NAMED = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])


def test_fields_by_name_keep_their_order() -> None:
    """By position a row made by name reads as it was written."""
    row = Row(user="ada", n=3)
    assert list(row) == ["ada", 3]
    assert repr(row) == "Row(user='ada', n=3)"
    assert row[0] == row["user"] == row.user == "ada"
    row["n"] += 1
    row[0] = "bob"
    assert row.as_dict() == row.asDict() == {"user": "bob", "n": 4}
    assert Row(a=Row(b=1)).asDict(True) == {"a": {"b": 1}}


def test_contains_asks_for_names_first() -> None:
    """A row by name is asked for names, one by position for values."""
    assert "user" in Row(user="ada")
    assert "ada" not in Row(user="ada")
    assert "ada" in Row("ada")


def test_rows_by_name_are_equal_in_any_order() -> None:
    """Equal rows have equal hashes; the kind counts too, and so does having names."""
    assert Row(a=1, b=2) == Row(b=2, a=1)
    assert hash(Row(a=1, b=2)) == hash(Row(b=2, a=1))
    assert Row(a=1, b=2) != Row(a=2, b=1)
    assert Row(a=1) != Row(1)
    assert Row(1) != Row.of_kind(RowKind.DELETE, 1)


def test_a_field_may_have_any_name() -> None:
    """No attribute of ours hides a field of a ported program."""
    assert Row(names="x").names == "x"


def test_fields_by_names() -> None:
    """The values of some fields, or of all if the row has no names."""
    assert Row(a=1, b=2, c=3).get_fields_by_names(["c", "a"]) == [3, 1]
    assert Row(1, 2).get_fields_by_names(["x"]) == [1, 2]
    with pytest.raises(KeyError, match="x"):
        Row(a=1).get_fields_by_names(["x"])


@pytest.mark.parametrize(
    ("kind", "short"), [(RowKind.INSERT, "+I"), (RowKind.UPDATE_BEFORE, "-U"), (RowKind.UPDATE_AFTER, "+U"), (RowKind.DELETE, "-D")]
)
def test_the_kind_survives(kind: RowKind, short: str) -> None:
    """Pickle, a row maker and state keep the kind of a row."""
    row = Row.of_kind(kind, user="ada", n=3)
    assert row.get_row_kind() is kind
    assert str(kind) == short
    assert pickle.loads(pickle.dumps(row)) == row
    maker = Row.of_kind(kind, "user", "n")
    assert maker("ada", 3) == row
    for type_, value in ((NAMED, row), (UNNAMED, Row.of_kind(kind, "ada", 3))):
        assert type_.decode(type_.encode(value)) == type_.normalize(value) == value
    nested = Types.LIST(NAMED)
    assert nested.decode(nested.encode([row])) == [row]


def test_payloads_and_pickles_without_a_kind_stay_the_same() -> None:
    """Rows of kind INSERT are written as before rows had kinds, and what was written then reads as INSERT."""
    payload = b"\0\0\0\3ada\0\0\0\x08" + (3).to_bytes(8, "big")
    assert NAMED.encode(Row(user="ada", n=3)) == payload
    assert NAMED.decode(payload) == Row(user="ada", n=3)
    assert Row(user="ada", n=3).__reduce__() == (_named, (("user", "n"), ("ada", 3)))
    assert NAMED.encode(Row.of_kind(RowKind.DELETE, user="ada", n=3)) == payload + b"\3"


@pytest.mark.parametrize("end", [b"\0", b"\4", b"\1\1"])
def test_other_bytes_at_the_end_are_damage(end: bytes) -> None:
    """Equal rows have equal payloads, so an INSERT that is spelled out is refused as an unknown kind is."""
    with pytest.raises(CorruptDataError):
        ValueCodec(UNNAMED, "state 's'").decode(b"\1" + UNNAMED.encode(Row("ada", 3)) + end)


def test_types_of_rows_and_tuples_tell_their_fields() -> None:
    """The getters of RowTypeInfo and TupleTypeInfo; fields without names are called f0, f1, as in Flink."""
    types: list[TypeInformation] = [Types.STRING(), Types.LONG()]
    assert (NAMED.get_field_names(), NAMED.get_field_types(), NAMED.get_field_index("n")) == (["user", "n"], types, 1)
    assert (UNNAMED.get_field_names(), UNNAMED.get_field_types(), UNNAMED.get_field_index("n")) == (["f0", "f1"], types, -1)
    assert Types.TUPLE(types).get_field_types() == types
    with pytest.raises(ValueError, match="x"):
        NAMED.get_field_index("x")
    assert Types.MAP(key_type_info=Types.STRING(), value_type_info=Types.LIST(element_type_info=Types.LONG())) == Types.MAP(
        Types.STRING(), Types.LIST(Types.LONG())
    )
