"""Flink's arithmetic of managed memory, against the worked values of its documentation and against decimal numbers."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statefulspark.errors import InvalidInputError
from statefulspark.memory.split import (
    MANAGED_BYTES_MIN,
    MemorySplit,
    arena_block_bytes,
    native_arena_block_bytes,
    smallest_managed_bytes,
)

MIB = 1 << 20


def mebibytes(size_bytes: int) -> float:
    return round(size_bytes / MIB, 2)


@pytest.mark.parametrize(
    ("managed", "cache", "write_buffers", "mutable", "pool"),
    [
        (128, 106.67, 42.67, 37.33, 10.67),
        (256, 213.33, 85.33, 74.67, 21.33),
        (512, 426.67, 170.67, 149.33, 42.67),
        (1024, 853.33, 341.33, 298.67, 85.33),
    ],
)
def test_worked_values(managed: int, cache: float, write_buffers: float, mutable: float, pool: float) -> None:
    """The values worked out from Flink's formulas at the default ratios."""
    split = MemorySplit.of(managed * MIB)
    found = (split.cache_bytes, split.write_buffer_bytes, split.mutable_bytes, split.high_prio_bytes)
    assert tuple(map(mebibytes, found)) == (cache, write_buffers, mutable, pool)


def test_exact_bytes() -> None:
    """To the byte, at the default ratios and where Flink's doubles are a byte off (2.55 x 25 MiB / 3 is a whole number, 22,282,240)."""
    split = MemorySplit.of(128 * MIB)
    assert (split.cache_bytes, split.write_buffer_bytes, split.mutable_bytes, split.high_prio_bytes) == (
        111_848_106,
        44_739_242,
        39_146_836,
        11_184_810,
    )
    assert MemorySplit.of(25 * MIB, 0.45).cache_bytes == 22_282_239
    assert int((3 - 0.45) * 25 * MIB / 3) == 22_282_239


@pytest.mark.parametrize(("ratio", "smallest"), [(0.3, 45.71), (0.4, 34.29), (0.5, 27.43), (0.6, 22.86), (0.8, 17.14)])
def test_smallest_budget_for_the_default_write_buffer(ratio: float, smallest: float) -> None:
    """64 MiB write buffers have 8 MiB arena blocks; the smallest budget that passes the check is Flink's, and one byte less fails."""
    arena = arena_block_bytes(64 * MIB)
    enough = smallest_managed_bytes(arena, ratio)
    assert mebibytes(enough) == smallest
    assert MemorySplit.of(enough, ratio).warnings(arena) == ()
    (warning,) = MemorySplit.of(enough - 1, ratio).warnings(arena)
    assert "8Mi" in warning
    assert f"at least {-(-enough * 100 // MIB) / 100:g}Mi" in warning


@pytest.mark.parametrize(("ratio", "of_cache"), [(0.3, 0.2222), (0.4, 0.3077), (0.5, 0.4), (0.6, 0.5), (0.8, 0.7273)])
def test_write_buffers_are_their_share_of_the_cache(ratio: float, of_cache: float) -> None:
    """Write buffers are charged to the cache: 2r / (3 - r) of it."""
    split = MemorySplit.of(1024 * MIB, ratio)
    assert round(split.write_buffer_bytes / split.cache_bytes, 4) == of_cache


@given(
    managed=st.integers(MANAGED_BYTES_MIN, 1 << 40),
    ratio=st.integers(1, 799).map(lambda thousandths: thousandths / 1000),
    pool=st.integers(0, 27).map(lambda hundredths: hundredths / 100),
)
def test_the_same_as_decimal_numbers(managed: int, ratio: float, pool: float) -> None:
    """For any budget and ratios the numbers are those of the formulas with decimal numbers of 60 digits, but for one byte of rounding."""
    split = MemorySplit.of(managed, ratio, pool)
    exact = Decimal(str(ratio))

    def floor(number: Decimal) -> int:
        return int(number.to_integral_value(rounding=ROUND_FLOOR))

    assert abs(floor(((3 - exact) * managed) / 3) - split.cache_bytes) <= 1
    assert abs(floor((2 * managed * exact) / 3) - split.write_buffer_bytes) <= 1
    assert split.mutable_bytes == floor(Decimal(split.write_buffer_bytes) * 7 / 8)
    assert abs(split.high_prio_bytes - floor(split.cache_bytes * Decimal(str(pool)))) <= 1


@given(managed=st.integers(MANAGED_BYTES_MIN, 1 << 40), ratio=st.floats(0.001, 0.8))
def test_the_overshoot_is_within_the_budget(managed: int, ratio: float) -> None:
    """Cache plus the half by which write buffers may overshoot never exceeds the budget, and wastes at most two bytes of it."""
    split = MemorySplit.of(managed, ratio, 0.0)
    assert managed - 2 <= split.cache_bytes + split.write_buffer_bytes / 2 <= managed + 1


@given(arena=st.integers(1, 1 << 32), ratio=st.floats(0.001, 0.999))
@example(arena=3_818_344, ratio=1 / 3)
def test_the_smallest_budget_is_the_smallest(arena: int, ratio: float) -> None:
    """The budget that an error or warning names passes the check, and a byte less does not."""
    enough = smallest_managed_bytes(arena, ratio)
    assert MemorySplit.of(enough, ratio, 0.0).mutable_bytes >= arena
    if enough > MANAGED_BYTES_MIN:
        assert MemorySplit.of(enough - 1, ratio, 0.0).mutable_bytes < arena


@pytest.mark.parametrize(("write_buffer", "block"), [(64 * MIB, 8 * MIB), (4 * MIB, MIB // 2), (100_000, 16_384), (32_768, 4096), (1, 0)])
def test_arena_block(write_buffer: int, block: int) -> None:
    """An eighth of the write buffer, rounded up to 4 KiB, unless it is given."""
    assert arena_block_bytes(write_buffer) == block
    assert arena_block_bytes(write_buffer, 12_345) == 12_345


def test_native_arena_block_is_capped() -> None:
    """The RocksDB in use takes at most 1 MiB unless told otherwise."""
    assert native_arena_block_bytes(64 * MIB) == MIB
    assert native_arena_block_bytes(4 * MIB) == MIB // 2
    assert native_arena_block_bytes(64 * MIB, 8 * MIB) == 8 * MIB


def test_what_is_refused() -> None:
    """Too small a budget names the smallest that works; ratios out of bounds and ratios that fill the cache name the field."""
    with pytest.raises(InvalidInputError, match=r"^managed memory: 1Mi per slot is too small for RocksDB\. Give at least 16Mi per slot$"):
        MemorySplit.of(MIB)
    with pytest.raises(InvalidInputError, match="write buffer ratio"):
        MemorySplit.of(64 * MIB, 1.0)
    with pytest.raises(InvalidInputError, match="high-priority pool ratio"):
        MemorySplit.of(64 * MIB, 0.5, 1.0)
    for ratio in (float("nan"), float("inf")):
        with pytest.raises(InvalidInputError, match="ratio: expected a number"):
            MemorySplit.of(64 * MIB, ratio)
    with pytest.raises(InvalidInputError, match=r"write buffers take 0\.73 of the cache"):
        MemorySplit.of(64 * MIB, 0.8, 0.3)
    with pytest.raises(InvalidInputError, match=r"writebuffer\.size"):
        arena_block_bytes(0)
    with pytest.raises(InvalidInputError, match="arena-block-size"):
        arena_block_bytes(64 * MIB, -1)
