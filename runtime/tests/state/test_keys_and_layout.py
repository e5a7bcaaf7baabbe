"""Key bytes and store keys: unambiguous, ordered, and damaged ones refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import CorruptDataError, IncompatibleFormatError, InvalidInputError
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import (
    StateInfo,
    StoreKey,
    TimerKey,
    key_group_range_bounds,
    prefix_end,
    split_store_key,
    split_timer_store_key,
    state_range,
    store_key,
    timer_store_key,
)
from statefulspark.state.types.types import Types

GROUPS = st.integers(0, 32767)
IDS = st.integers(0, 65535)
TIMESTAMPS = st.integers(-(1 << 63), (1 << 63) - 1)

SEVERAL = KeyCodec([Types.STRING(), Types.LONG(), Types.STRING()])


@given(st.tuples(st.text(), st.integers(-5, 5), st.text()), st.tuples(st.text(), st.integers(-5, 5), st.text()))
def test_keys_of_several_columns_are_unambiguous(left: tuple[Any, ...], right: tuple[Any, ...]) -> None:
    """Bytes are equal exactly when keys are, and decode to the key."""
    assert SEVERAL.decode(SEVERAL.encode(left)) == left
    assert (SEVERAL.encode(left) == SEVERAL.encode(right)) == (left == right)


@given(st.text())
def test_key_of_one_column_is_a_scalar(key: str) -> None:
    """One column is its payload alone."""
    codec = KeyCodec([Types.STRING()])
    assert codec.encode(key) == key.encode()
    assert codec.decode(codec.encode(key)) == key


def test_keys_that_spark_groups_together_are_one_key() -> None:
    """-0.0 is 0.0 and every NaN is the same key, alone and among several columns."""
    one = KeyCodec([Types.DOUBLE()])
    two = KeyCodec([Types.DOUBLE(), Types.LONG()])
    assert one.encode(-0.0) == one.encode(0.0)
    assert one.encode(float("nan")) == one.encode(-float("nan"))
    assert two.encode((-0.0, 1)) == two.encode((0.0, 1))


@pytest.mark.parametrize(
    ("codec", "key"),
    [
        (KeyCodec([Types.STRING()]), None),
        (KeyCodec([Types.DOUBLE()]), None),
        (SEVERAL, ("a", None, "b")),
        (SEVERAL, ("a", 1)),
        (SEVERAL, "a"),
        (KeyCodec([Types.LONG()]), "a"),
    ],
)
def test_unfit_keys_are_refused(codec: KeyCodec, key: Any) -> None:
    """None, another number of columns and other types are input errors."""
    with pytest.raises(InvalidInputError):
        codec.encode(key)


@pytest.mark.parametrize(
    "type_", [Types.LIST(Types.LONG()), Types.PICKLED_BYTE_ARRAY(), Types.ROW([]), Types.TUPLE([Types.LIST(Types.LONG())])]
)
def test_types_that_cannot_be_keys_are_refused(type_: Any) -> None:
    """A key type must be immutable and have one form per value."""
    with pytest.raises(InvalidInputError, match="cannot be a key"):
        KeyCodec([type_])
    with pytest.raises(InvalidInputError, match="at least one column"):
        KeyCodec([])


def test_codec_is_rebuilt_from_json() -> None:
    """A checkpoint's reader decodes keys without the job's code."""
    assert KeyCodec.from_json(SEVERAL.to_json()).decode(SEVERAL.encode(("a", 1, ""))) == ("a", 1, "")


@pytest.mark.parametrize("data", [b"", b"\0\0\0\5ab", SEVERAL.encode(("a", 1, "b")) + b"x"])
def test_damaged_keys_are_refused(data: bytes) -> None:
    """Cut keys and keys with something left over are corrupt."""
    with pytest.raises(CorruptDataError):
        SEVERAL.decode(data)


@given(GROUPS, IDS, st.binary(max_size=20), st.binary(max_size=20))
def test_store_keys_round_trip(group: int, state_id: int, key: bytes, user_key: bytes) -> None:
    """A store key comes apart into what made it, and lies in the ranges of its state and key group."""
    data = store_key(group, state_id, key, user_key)
    assert split_store_key(data) == StoreKey(group, state_id, key, user_key)
    assert data[:2] == group.to_bytes(2, "big")
    for first, end in (state_range(group, state_id), key_group_range_bounds(group, group)):
        assert first <= data < end


@given(GROUPS, IDS, st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9))
def test_a_map_is_one_range(group: int, state_id: int, key: bytes, other: bytes, user_key: bytes) -> None:
    """The prefix of a key's map holds its entries and nobody else's."""
    prefix = store_key(group, state_id, key)
    assert prefix <= store_key(group, state_id, key, user_key) < prefix_end(prefix)
    if other != key:
        assert not prefix <= store_key(group, state_id, other, user_key) < prefix_end(prefix)


@given(GROUPS, IDS, TIMESTAMPS, TIMESTAMPS, st.binary(max_size=9), st.binary(max_size=9))
def test_timers_are_ordered_by_time(group: int, state_id: int, first_ms: int, second_ms: int, first: bytes, second: bytes) -> None:
    """Byte order is (timestamp, key) order, before the epoch too, and timers come apart again."""
    one, two = timer_store_key(group, state_id, first_ms, first), timer_store_key(group, state_id, second_ms, second)
    assert split_timer_store_key(one) == TimerKey(group, state_id, first_ms, first)
    assert (one < two) == ((first_ms, first) < (second_ms, second))
    begin, end = state_range(group, state_id)
    assert begin <= one < end


@pytest.mark.parametrize("data", [b"", b"\0\0\0\1\0\0\0", b"\0\0\0\1\0\0\0\5abcd"])
def test_damaged_store_keys_are_refused(data: bytes) -> None:
    """Too short for the lengths inside is corrupt."""
    with pytest.raises(CorruptDataError):
        split_store_key(data)


def test_damaged_timer_key_is_refused() -> None:
    """Too short is corrupt."""
    with pytest.raises(CorruptDataError):
        split_timer_store_key(b"\0" * 11)


def test_state_info_round_trips() -> None:
    """What the registry knows survives JSON; half of it does not."""
    info = StateInfo(7, "step", "count", "value", [Types.STRING().to_json()], Types.LONG().to_json(), 1000)
    assert StateInfo.from_json(info.to_json()) == info
    with pytest.raises(IncompatibleFormatError):
        StateInfo.from_json({"state_id": 7})
