"""What a sweep finds by comparing bytes is what decoding finds."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from statefulspark.state.encoding.values import NONE, PLAIN, expiry_of, join_expiry
from statefulspark.state.tables.expired_entries import swept_map_entries, swept_values
from statefulspark.state.tables.sweep import Swept

TIMES = st.integers(0, 5) | st.integers(0, (1 << 63) - 1)
PAYLOADS = st.binary(max_size=3)
VALUES = st.builds(lambda expiry_ms, payload: join_expiry(expiry_ms, bytes([PLAIN]) + payload), TIMES, PAYLOADS)
NONES = st.builds(lambda expiry_ms: join_expiry(expiry_ms, bytes([NONE])), TIMES)
PLAIN_VALUES = st.builds(lambda payload: bytes([PLAIN]) + payload, PAYLOADS)


def found(stored: list[bytes], now_ms: int) -> Swept:
    """The oracle: each entry by its own expiry."""
    keys = [bytes([number]) for number in range(len(stored))]
    expiries = [expiry_of(data) for data in stored]
    deletes = [key for key, expiry_ms in zip(keys, expiries, strict=True) if expiry_ms is not None and expiry_ms <= now_ms]
    left = [expiry_ms for expiry_ms in expiries if expiry_ms is not None and expiry_ms > now_ms]
    return Swept(deletes, [], len(deletes), keys[-1] if keys else None, len(keys), len(keys), min(left, default=None))


@given(st.lists(VALUES | PLAIN_VALUES, max_size=8), TIMES.filter(lambda now_ms: now_ms < (1 << 63) - 1))
@example([join_expiry(1, b"\1")], 1)
@example([join_expiry(2, b"\1")], 1)
def test_values(stored: list[bytes], now_ms: int) -> None:
    """With payloads and without, and of states that had no time to live before."""
    assert swept_values(((bytes([number]), data) for number, data in enumerate(stored)), now_ms) == found(stored, now_ms)


@given(st.lists(VALUES | NONES | PLAIN_VALUES | st.just(bytes([NONE])), max_size=8), TIMES.filter(lambda now_ms: now_ms < (1 << 63) - 1))
@example([join_expiry(1, bytes([NONE])), join_expiry(1, b"\1")], 1)
def test_map_entries(stored: list[bytes], now_ms: int) -> None:
    """As values, and None."""
    assert swept_map_entries(((bytes([number]), data) for number, data in enumerate(stored)), now_ms) == found(stored, now_ms)
