"""Payloads of every type become the Arrow values that decoding them one by one gives."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statefulspark.errors import IncompatibleFormatError, InvalidInputError
from statefulspark.state.row import Row, RowKind
from statefulspark.state.times import Instant
from statefulspark.state.types.arrow_types import AS_DECLARED, Conversions, arrow_type
from statefulspark.state.types.types import TypeInformation, Types
from statefulspark.state_tables.read.arrays import array_of
from statefulspark.state_tables.read.payloads import Payloads

_MICROS = datetime(1, 1, 1), datetime(9999, 12, 31)  # noqa: DTZ001
_DIGITS = st.decimals(-(10**19), 10**19, places=18, allow_nan=False)
_SCALARS: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.BYTE(), st.integers(-128, 127)),
    (Types.SHORT(), st.integers(-(1 << 15), (1 << 15) - 1)),
    (Types.INT(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (Types.LONG(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (Types.BIG_INT(), st.integers(-(10**38) + 1, 10**38 - 1)),
    (Types.BIG_DEC(), _DIGITS),
    (Types.FLOAT(), st.floats(width=32)),
    (Types.DOUBLE(), st.floats()),
    (Types.BOOLEAN(), st.booleans()),
    (Types.STRING(), st.text(st.characters(codec="utf-8"))),
    (Types.CHAR(), st.characters(codec="utf-8")),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), st.datetimes(*_MICROS)),
    (Types.INSTANT(), st.builds(Instant, st.integers(-(1 << 60), 1 << 60), st.integers(0, 999_999_999))),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
    (Types.PRIMITIVE_ARRAY(Types.LONG()), st.lists(st.integers(-(1 << 63), (1 << 63) - 1))),
    (Types.PRIMITIVE_ARRAY(Types.BOOLEAN()), st.lists(st.booleans())),
    (Types.PICKLED_BYTE_ARRAY(), st.one_of(st.integers(), st.text(), st.lists(st.integers()))),
]
_KEYS = [pair for pair in _SCALARS if pair[0].name in {"STRING", "LONG", "BOOLEAN", "SQL_DATE"}]
Typed = tuple[TypeInformation, st.SearchStrategy[Any]]


def _fields(parts: list[Typed]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(st.none() | values for _, values in parts))


def _composites(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def lists(part: Typed) -> Typed:
        return Types.LIST(part[0]), st.lists(st.none() | part[1], max_size=3)

    def maps(parts: tuple[Typed, Typed]) -> Typed:
        (key, keys), (value, values) = parts
        return Types.MAP(key, value), st.dictionaries(keys, st.none() | values, max_size=3)

    def tuples(parts: list[Typed]) -> Typed:
        return Types.TUPLE([type_ for type_, _ in parts]), _fields(parts)

    def rows(parts: list[Typed]) -> Typed:
        names = [f"é{place}" for place in range(len(parts))]
        kinds = st.sampled_from(RowKind)
        return Types.ROW_NAMED(names, [type_ for type_, _ in parts]), st.builds(_row, _fields(parts), kinds)

    some = st.lists(inner, max_size=3)
    return st.one_of(inner.map(lists), st.tuples(st.sampled_from(_KEYS), inner).map(maps), some.map(tuples), some.map(rows))


def _row(values: tuple[Any, ...], kind: RowKind) -> Row:
    row = Row(*values)
    row.set_row_kind(kind)
    return row


TYPED = st.recursive(st.sampled_from(_SCALARS), _composites, max_leaves=6)


def shown(type_: TypeInformation, value: Any, payload: bytes) -> Any:
    """What Arrow gives back of a value: an oracle that never looks at payloads but for pickled ones."""
    if value is None:
        return None
    description = type_.to_json()
    match type_.name:
        case "BIG_INT" | "BIG_DEC":
            return Decimal(value)
        case "INSTANT":
            return {"seconds": value.seconds, "nanos": value.nanos}
        case "PICKLED_BYTE_ARRAY":
            return payload
        case "LIST":
            return [shown(type_.element, each, _payload(type_.element, each)) for each in value]  # type: ignore[attr-defined]  # of a LIST
        case "MAP":
            return [(key, shown(type_.value, each, _payload(type_.value, each))) for key, each in value.items()]  # type: ignore[attr-defined]  # of a MAP
        case "TUPLE" | "ROW":
            types = type_.get_field_types()  # type: ignore[attr-defined]  # of a TUPLE or ROW
            names = description.get("names") or [f"f{place}" for place in range(len(types))]
            parts = zip(names, types, value, strict=True)
            return {name: shown(each, part, _payload(each, part)) for name, each, part in parts}
        case _:
            pass
    return value


def _payloads(values: list[bytes | None]) -> Payloads:
    """Payloads of which some are None."""
    return Payloads.of([each or b"" for each in values]).where(np.array([each is not None for each in values], np.bool_))


def _payload(type_: TypeInformation, value: Any) -> bytes:
    return b"" if value is None else type_.encode(value)


def same(left: Any, right: Any) -> bool:
    """True if both are equal, NaN included, and True is not 1."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)


@settings(deadline=None)
@given(st.data())
def test_arrays_hold_what_was_encoded(data: st.DataObject) -> None:
    """Types nested at random, with None, NaN, empty texts, zeros and all of unicode."""
    type_, values = data.draw(TYPED)
    drawn = data.draw(st.lists(st.none() | values, max_size=5))
    payloads = [None if each is None else type_.encode(each) for each in drawn]
    array = array_of(type_.to_json(), _payloads(payloads), AS_DECLARED)
    array.validate(full=True)
    assert array.type == arrow_type(type_.to_json(), AS_DECLARED)
    expected = [shown(type_, each, payload or b"") for each, payload in zip(drawn, payloads, strict=True)]
    assert same(array.to_pylist(), expected)


@settings(deadline=None)
@given(st.data())
def test_damaged_payloads_are_refused_or_read(data: st.DataObject) -> None:
    """Bytes that are cut, changed or hostile never crash and never read beyond their own payload: ValueError, or some value."""
    type_, values = data.draw(TYPED)
    payload = bytearray(type_.encode(data.draw(values)))
    cut = data.draw(st.integers(0, len(payload)))
    damaged = bytes(payload[:cut]) + data.draw(st.binary(max_size=6))
    whole = Payloads.of([damaged, b"\xff" * 64])
    try:
        array = array_of(type_.to_json(), whole.where(whole.starts == 0), AS_DECLARED)
    except ValueError:
        return
    array.validate()
    assert array.null_count == 1


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        (Types.LONG(), b"\0" * 7),
        (Types.BOOLEAN(), b"\2"),
        (Types.STRING(), b"\xff"),
        (Types.SQL_TIME(), (86_400_000_000).to_bytes(8, "big")),
        (Types.LIST(Types.LONG()), b"\xff\xff\xff\xff"),
        (Types.LIST(Types.LONG()), b"\0\0\0\1"),
        (Types.LIST(Types.LONG()), b"\0\0"),
        (Types.TUPLE([Types.LONG()]), b"\xff\xff\xff\xff\0"),
        (Types.ROW([Types.LONG()]), b"\xff\xff\xff\xff\4"),
        (Types.ROW([Types.LONG()]), b"\xff\xff\xff\xff\1\1"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), b"\0" * 5),
        (Types.BIG_INT(), b""),
    ],
)
def test_payloads_that_fit_no_value(type_: TypeInformation, payload: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the layout names the state
        array_of(type_.to_json(), Payloads.of([payload]), AS_DECLARED)


def test_numbers_that_do_not_fit_are_never_rounded() -> None:
    """An error names the way out, which holds every digit."""
    wide = [Decimal("1e-19"), Decimal(10**20), Decimal("NaN")]
    for value in wide:
        with pytest.raises(InvalidInputError, match="decimals_as_text"):
            array_of(Types.BIG_DEC().to_json(), Payloads.of([Types.BIG_DEC().encode(value)]), AS_DECLARED)
    texts = array_of(
        Types.BIG_DEC().to_json(), Payloads.of([Types.BIG_DEC().encode(each) for each in wide]), Conversions(decimals_as_text=True)
    )
    assert texts.to_pylist() == ["1E-19", "100000000000000000000", "NaN"]
    integer = Payloads.of([Types.BIG_INT().encode(10**50)])
    assert array_of(Types.BIG_INT().to_json(), integer, Conversions(decimals_as_text=True)).to_pylist() == [str(10**50)]


def test_a_map_with_the_key_none_is_refused() -> None:
    """Arrow's maps have no null keys."""
    type_ = Types.MAP(Types.STRING(), Types.LONG())
    payload = b"\0\0\0\1" + b"\xff\xff\xff\xff" + b"\xff\xff\xff\xff"
    with pytest.raises(InvalidInputError, match="key None"):
        array_of(type_.to_json(), Payloads.of([payload]), AS_DECLARED)


def test_types_of_later_releases_are_unknown() -> None:
    with pytest.raises(IncompatibleFormatError, match="unknown type"):
        arrow_type({"type": "GEOMETRY"}, AS_DECLARED)


def test_pickled_objects_become_text_on_request() -> None:
    payloads = _payloads([Types.PICKLED_BYTE_ARRAY().encode({"at": date(2024, 2, 29)}), None])
    array = array_of(Types.PICKLED_BYTE_ARRAY().to_json(), payloads, Conversions(unpickle=True))
    assert array.to_pylist() == ["{'at': datetime.date(2024, 2, 29)}", None]


def test_large_payloads_take_the_other_way() -> None:
    """Long texts are copied one by one; the result is the same."""
    texts = ["x" * 5000, "", "é" * 4000]
    array = array_of(Types.STRING().to_json(), Payloads.of([text.encode() for text in texts]), AS_DECLARED)
    assert array.to_pylist() == texts


def test_times_keep_their_microseconds() -> None:
    moment = datetime(2024, 2, 29, 23, 59, 59, 999_999)  # noqa: DTZ001
    array = array_of(Types.SQL_TIMESTAMP().to_json(), Payloads.of([Types.SQL_TIMESTAMP().encode(moment)]), AS_DECLARED)
    assert array.cast(pa.timestamp("us", "UTC")).to_pylist() == [moment.replace(tzinfo=UTC)]
    clock = array_of(Types.SQL_TIME().to_json(), Payloads.of([Types.SQL_TIME().encode(time(1, 2, 3, 4))]), AS_DECLARED)
    assert clock.to_pylist() == [time(1, 2, 3, 4)]
