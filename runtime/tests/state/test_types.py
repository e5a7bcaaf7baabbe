"""Types: every value comes back as it was, equal values give equal bytes, and what is of another type is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from math import copysign, isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import CorruptDataError, IncompatibleFormatError, InvalidInputError
from statefulspark.state.encoding.values import Encoded, ValueCodec, expiry_of, join_expiry
from statefulspark.state.row import Row
from statefulspark.state.times import Instant, Time
from statefulspark.state.types.types import TypeInformation, Types, type_from_json

SCALARS: dict[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    "STRING": (Types.STRING(), st.text()),
    "BOOLEAN": (Types.BOOLEAN(), st.booleans()),
    "BYTE": (Types.BYTE(), st.integers(-(1 << 7), (1 << 7) - 1)),
    "SHORT": (Types.SHORT(), st.integers(-(1 << 15), (1 << 15) - 1)),
    "INT": (Types.INT(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "LONG": (Types.LONG(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "FLOAT": (Types.FLOAT(), st.floats(width=32)),
    "DOUBLE": (Types.DOUBLE(), st.floats()),
    "CHAR": (Types.CHAR(), st.characters(exclude_categories=["Cs"])),
    "BIG_INT": (Types.BIG_INT(), st.integers()),
    "BIG_DEC": (Types.BIG_DEC(), st.decimals().filter(lambda number: not number.is_snan())),
    "SQL_DATE": (Types.SQL_DATE(), st.dates()),
    "SQL_TIME": (Types.SQL_TIME(), st.times()),
    "SQL_TIMESTAMP": (Types.SQL_TIMESTAMP(), st.datetimes()),
    "INSTANT": (Types.INSTANT(), st.builds(Instant, st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 999_999_999))),
    "BYTES": (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
}
SCALAR = st.sampled_from(list(SCALARS.values()))


def wrap(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Strategies of (type, strategy of values) one level deeper."""
    return st.one_of(
        inner.map(lambda pair: (Types.LIST(pair[0]), st.lists(st.none() | pair[1], max_size=4))),
        inner.map(lambda pair: (Types.OBJECT_ARRAY(pair[0]), st.lists(pair[1], max_size=4))),
        st.lists(inner, max_size=3).map(
            lambda pairs: (Types.TUPLE([type_ for type_, _ in pairs]), st.tuples(*(st.none() | values for _, values in pairs)))
        ),
        st.lists(inner, max_size=3).map(
            lambda pairs: (Types.ROW([type_ for type_, _ in pairs]), st.tuples(*(values for _, values in pairs)).map(lambda row: Row(*row)))
        ),
        st.tuples(SCALAR, inner).map(
            lambda pairs: (Types.MAP(pairs[0][0], pairs[1][0]), st.dictionaries(pairs[0][1], st.none() | pairs[1][1], max_size=3))
        ),
    )


TYPED_VALUES = st.recursive(SCALAR, wrap, max_leaves=4).flatmap(lambda pair: st.tuples(st.just(pair[0]), pair[1]))


def same(left: Any, right: Any) -> bool:
    """Equal to the last bit: of one class, NaN like NaN, -0.0 unlike 0.0, 1.0 unlike 1.00 as a decimal."""
    if left.__class__ is not right.__class__:
        return False
    if isinstance(left, float):
        return (isnan(left) and isnan(right)) or (left == right and copysign(1, left) == copysign(1, right))
    if isinstance(left, Decimal):
        return str(left) == str(right)
    if isinstance(left, list | tuple | Row):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return len(left) == len(right) and all(map(same, left.items(), right.items()))
    return bool(left == right)


@given(TYPED_VALUES)
def test_values_round_trip(typed: tuple[TypeInformation, Any]) -> None:
    """Decoding gives what was encoded, which is also what `normalize` promises; a copy gives the same bytes."""
    type_, value = typed
    data = type_.encode(value)
    assert same(type_.decode(data), value)
    assert same(type_.normalize(value), value)
    assert type_.encode(pickle.loads(pickle.dumps(value))) == data


@given(TYPED_VALUES)
def test_descriptions_round_trip(typed: tuple[TypeInformation, Any]) -> None:
    """A type is rebuilt from its JSON and reads what the original wrote."""
    type_, value = typed
    again = type_from_json(type_.to_json())
    assert again == type_
    assert hash(again) == hash(type_)
    assert same(again.decode(type_.encode(value)), value)


@given(TYPED_VALUES, st.data())
def test_damaged_payloads_are_noticed_or_read(typed: tuple[TypeInformation, Any], data: st.DataObject) -> None:
    """Cut bytes give a value of the type or an error that names the state, never another exception."""
    type_, value = typed
    stored = ValueCodec(type_, "state 's'").encode(value)
    cut = stored[: data.draw(st.integers(0, len(stored) - 1))]
    with suppress(CorruptDataError):
        ValueCodec(type_, "state 's'").decode(cut)


@given(st.recursive(st.none() | st.integers() | st.text() | st.booleans(), lambda inner: st.lists(inner) | st.tuples(inner, inner)))
def test_any_object_round_trips_pickled(value: Any) -> None:
    """PICKLED_BYTE_ARRAY takes what pickles, and equal tuples give equal bytes whatever they share."""
    type_ = Types.PICKLED_BYTE_ARRAY()
    data = type_.encode(value)
    assert same(type_.decode(data), value)
    assert type_.encode((pickle.loads(pickle.dumps(value)), "x", "xy"[:1])) == type_.encode((value, "x", "x"))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Types.LONG(), "1"),
        (Types.LONG(), 1.0),
        (Types.LONG(), True),
        (Types.LONG(), 1 << 63),
        (Types.BYTE(), 128),
        (Types.BIG_INT(), 1.5),
        (Types.DOUBLE(), "1.0"),
        (Types.DOUBLE(), True),
        (Types.FLOAT(), None),
        (Types.BOOLEAN(), 1),
        (Types.STRING(), b"x"),
        (Types.STRING(), "\ud800"),
        (Types.CHAR(), "xy"),
        (Types.CHAR(), ""),
        (Types.BIG_DEC(), 1.5),
        (Types.SQL_DATE(), datetime(2020, 1, 1)),  # noqa: DTZ001  # that it has no zone is the point
        (Types.SQL_TIME(), time(1, tzinfo=UTC)),
        (Types.SQL_TIMESTAMP(), datetime(2020, 1, 1, tzinfo=UTC)),
        (Types.SQL_TIMESTAMP(), date(2020, 1, 1)),
        (Types.INSTANT(), 5),
        (Types.INSTANT(), Instant(1 << 63)),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [1]),
        (Types.PRIMITIVE_ARRAY(Types.LONG()), [None]),
        (Types.LIST(Types.LONG()), "12"),
        (Types.LIST(Types.LONG()), 5),
        (Types.LIST(Types.LONG()), [1, "2"]),
        (Types.MAP(Types.STRING(), Types.LONG()), [("a", 1)]),
        (Types.MAP(Types.STRING(), Types.LONG()), {1: 1}),
        (Types.TUPLE([Types.LONG()]), [1]),
        (Types.TUPLE([Types.LONG()]), (1, 2)),
        (Types.ROW([Types.LONG()]), {"a": 1}),
        (Types.ROW_NAMED(["a"], [Types.LONG()]), Row(b=1)),
        (Types.PICKLED_BYTE_ARRAY(), lambda: None),
    ],
)
def test_other_values_are_refused(type_: TypeInformation, value: Any) -> None:
    """A value of another type is an input error, from `encode` as from `normalize`, that does not show the value."""
    with pytest.raises(InvalidInputError):
        type_.encode(value)
    if type_.name != "STRING" and type_.immutable is not None:
        with pytest.raises(InvalidInputError):
            type_.normalize(value)


@pytest.mark.parametrize(
    ("type_", "given_value", "kept"),
    [
        (Types.DOUBLE(), 1, 1.0),
        (Types.FLOAT(), 0.1, 0.10000000149011612),
        (Types.FLOAT(), 1e300, float("inf")),
        (Types.SQL_DATE(), type("Sub", (date,), {})(2020, 1, 2), date(2020, 1, 2)),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), bytearray(b"x"), b"x"),
        (Types.PRIMITIVE_ARRAY(Types.SHORT()), (1, -2), [1, -2]),
        (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), [1, 2.5], [1.0, 2.5]),
        (Types.PRIMITIVE_ARRAY(Types.BOOLEAN()), [True, False], [True, False]),
        (Types.LIST(Types.LONG()), range(3), [0, 1, 2]),
        (Types.ROW([Types.LONG()]), (1,), Row(1)),
        (Types.ROW_NAMED(["b", "a"], [Types.LONG(), Types.STRING()]), Row(a="x", b=1), Row("b", "a")(1, "x")),
        (Types.ROW_NAMED(["b", "a"], [Types.LONG(), Types.STRING()]), [1, None], Row("b", "a")(1, None)),
    ],
)
def test_kind_values_are_taken_over(type_: TypeInformation, given_value: Any, kept: Any) -> None:
    """What fits after a harmless conversion is converted the same way at once and by way of bytes."""
    assert same(type_.normalize(given_value), kept)
    assert same(type_.decode(type_.encode(given_value)), kept)
    assert type_.normalize(given_value) == kept


def test_unknown_description_is_refused() -> None:
    """A type of a newer release, or half a description, is an incompatible format."""
    with pytest.raises(IncompatibleFormatError, match="unknown type"):
        type_from_json({"type": "TENSOR"})
    with pytest.raises(IncompatibleFormatError, match="incomplete"):
        type_from_json({"type": "LIST"})


def test_unfit_type_arguments_are_refused() -> None:
    """Arrays of primitives take numbers only; field names fit the fields."""
    with pytest.raises(InvalidInputError, match="not a primitive type"):
        Types.PRIMITIVE_ARRAY(Types.STRING())
    with pytest.raises(InvalidInputError, match="distinct names"):
        Types.ROW_NAMED(["a", "a"], [Types.LONG(), Types.LONG()])


class TestValueCodec:
    CODEC = ValueCodec(Types.STRING(), "state 's'")

    def test_version_comes_first(self) -> None:
        """A plain value is version 1 and payload, for numbers too."""
        assert self.CODEC.encode("x") == b"\x01x"
        assert ValueCodec(Types.LONG(), "").encode(258) == b"\x01\0\0\0\0\0\0\1\2"
        assert ValueCodec(Types.BOOLEAN(), "").encode(True) == b"\x01\x01"

    @pytest.mark.parametrize("type_", [Types.STRING(), Types.LONG()])
    def test_unknown_version_is_refused(self, type_: TypeInformation) -> None:
        """Bytes of a newer version are not guessed at; of a wrong known version they are damaged."""
        with pytest.raises(IncompatibleFormatError, match="unknown version"):
            ValueCodec(type_, "state 's'").decode(b"\x09" + b"x" * 8)
        with pytest.raises(CorruptDataError, match="damaged"):
            ValueCodec(type_, "state 's'").decode(b"\x02" + b"x" * 8)

    @pytest.mark.parametrize("value", ["x", "", None])
    def test_expiry_round_trips(self, value: str | None) -> None:
        """Expiry and value come apart again, also for None."""
        plain = self.CODEC.encode_nullable(value)
        data = join_expiry(-5, plain)
        assert expiry_of(data) == -5
        assert expiry_of(plain) is None
        assert self.CODEC.split_expiry(data) == (-5, plain)
        assert self.CODEC.decode_nullable(plain) == value
        with pytest.raises(CorruptDataError):
            self.CODEC.split_expiry(plain)

    def test_number_out_of_bounds_names_the_state(self) -> None:
        """A LONG that is too wide is refused when it is encoded."""
        with pytest.raises(InvalidInputError, match=r"state 's': the number does not fit"):
            ValueCodec(Types.LONG(), "state 's'").encode(1 << 63)

    def test_encoded_is_bytes(self) -> None:
        """What caches keep of changeable values is stored as it is."""
        assert Encoded(b"x") == b"x"


@pytest.mark.parametrize(
    ("make", "milliseconds"),
    [(Time.milliseconds, 1), (Time.seconds, 1000), (Time.minutes, 60_000), (Time.hours, 3_600_000), (Time.days, 86_400_000)],
)
def test_time_units(make: Callable[[int], Time], milliseconds: int) -> None:
    """Each unit in milliseconds; equal lengths are equal, however they were made."""
    assert make(2).to_milliseconds() == 2 * milliseconds
    assert make(2) == Time(2 * milliseconds) != Time(1)
    assert hash(make(2)) == hash(Time(2 * milliseconds))
    assert (str(make(2)), repr(make(2))) == (f"{2 * milliseconds} ms", f"Time({2 * milliseconds})")


def test_instant_of_milliseconds() -> None:
    """Milliseconds before the epoch too."""
    assert Instant.of_epoch_milli(-1) == Instant(-1, 999_000_000)
    assert Instant(-1, 999_000_000).to_epoch_milli() == -1
    with pytest.raises(InvalidInputError, match="nanos"):
        Instant(0, 1_000_000_000)
