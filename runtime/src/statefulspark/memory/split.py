"""Divides the managed memory of one slot between block cache and write buffers. Pure.

Used by the state layer (to size RocksDB's cache and write buffer manager), the command line, the process model and the
operator.

Source: Apache Flink, ``RocksDBMemoryControllerUtils``. Flink assumes that write buffers may exceed their limit by half during a
flush, so 1.5 x limit = ratio x budget, and that the cache, to which write buffers are charged, contains the limit and the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from statefulspark.errors import InvalidInputError
from statefulspark.sizes import short_size

WRITE_BUFFER_RATIO: Final = 0.5
"""Flink's default share of write buffers."""
HIGH_PRIO_POOL_RATIO: Final = 0.1
"""Flink's default share of the cache for index and filter blocks."""
WRITE_BUFFER_BYTES: Final = 64 << 20
"""Flink's default of ``writebuffer.size``: where one write buffer is flushed."""
MANAGED_BYTES_MIN: Final = 16 << 20
"""With less, write buffers that wait to be flushed alone exceed the budget; measured by bench/smallest_budget.py."""

POOL_REMEDY: Final = "Keep 2r / (3 - r) + highPrioPoolRatio below 1"
"""Remedy for a problem found by `pool_problem`."""

_ARENA_ALIGNMENT: Final = 4096
_ARENA_CAP_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySplit:
    """The managed memory of one slot, divided.

    Attributes:
        managed_bytes: The whole budget.
        write_buffer_ratio: Share of write buffers with their overshoot, between 0 and 1.
        high_prio_pool_ratio: Share of the cache that is kept for index and filter blocks, 0 to below 1.
        cache_bytes: Capacity of the block cache, write buffers included: floor((3 - ratio) x managed / 3).
        write_buffer_bytes: Limit of all write buffers together: floor(2 x managed x ratio / 3).
        high_prio_bytes: The part of ``cache_bytes`` for index and filter blocks.
        mutable_bytes: Write buffers still being written are flushed when they are larger than this: 7/8 of their limit.
    """

    managed_bytes: int
    write_buffer_ratio: float
    high_prio_pool_ratio: float
    cache_bytes: int
    write_buffer_bytes: int
    high_prio_bytes: int
    mutable_bytes: int

    @classmethod
    def of(
        cls,
        managed_bytes: int,
        write_buffer_ratio: float = WRITE_BUFFER_RATIO,
        high_prio_pool_ratio: float = HIGH_PRIO_POOL_RATIO,
    ) -> MemorySplit:
        """Divide ``managed_bytes``.

        Args:
            managed_bytes: Budget of one slot, at least `MANAGED_BYTES_MIN`.
            write_buffer_ratio: Between 0 and 1.
            high_prio_pool_ratio: From 0 to below 1; with the write buffers it must leave some of the cache for data blocks.

        Raises:
            InvalidInputError: An argument is out of bounds; for a budget too small the text names the smallest that works.
        """
        ratio, pool = exact(write_buffer_ratio), exact(high_prio_pool_ratio)
        _check_ratios(ratio, pool)
        if managed_bytes < MANAGED_BYTES_MIN:
            raise InvalidInputError(
                f"{short_size(managed_bytes)} per slot is too small for RocksDB",
                field="managed memory",
                remedy=f"Give at least {short_size(MANAGED_BYTES_MIN)} per slot",
            )
        # In doubles and in Flink's order of operations, so that every byte is Flink's where rounding decides it.
        cache_bytes = int((3 - write_buffer_ratio) * managed_bytes / 3)
        write_buffer_bytes = _write_buffer_bytes(managed_bytes, write_buffer_ratio)
        return cls(
            managed_bytes=managed_bytes,
            write_buffer_ratio=write_buffer_ratio,
            high_prio_pool_ratio=high_prio_pool_ratio,
            cache_bytes=cache_bytes,
            write_buffer_bytes=write_buffer_bytes,
            high_prio_bytes=int(cache_bytes * high_prio_pool_ratio),
            mutable_bytes=_mutable_bytes(write_buffer_bytes),
        )

    def warnings(self, arena_bytes: int) -> tuple[str, ...]:
        """Describe the problem of a budget that works, but performs badly.

        RocksDB takes memory for a write buffer in arena blocks. When a single block is above ``mutable_bytes``, the first entry that is
        written makes RocksDB flush, and so does every one after it.

        Args:
            arena_bytes: Size of a write buffer's arena block; see `arena_block_bytes`.

        Source: Apache Flink, ``RocksDBMemoryControllerUtils.validateArenaBlockSize``, a warning there as well.
        """
        if arena_bytes <= self.mutable_bytes:
            return ()
        enough = smallest_managed_bytes(arena_bytes, self.write_buffer_ratio)
        text = (
            f"An arena block of {short_size(arena_bytes)} is larger than the mutable limit of {short_size(self.mutable_bytes)}"
            f" (7/8 of the write buffers' {short_size(self.write_buffer_bytes)}): RocksDB would flush all the time."
            f" Give each slot at least {short_size(enough, up=True)} of managed memory, raise writeBufferRatio, or lower writebuffer.size"
            " or arena-block-size"
        )
        return (text,)


def arena_block_bytes(write_buffer_bytes: int = WRITE_BUFFER_BYTES, configured_bytes: int = 0) -> int:
    """Return the size of the blocks in which a write buffer takes memory, as Flink computes it.

    Args:
        write_buffer_bytes: Size of one write buffer (``writebuffer.size``), at least 1.
        configured_bytes: ``arena-block-size``; 0 takes an eighth of the write buffer, rounded up to 4 KiB.

    Raises:
        InvalidInputError: An argument is out of bounds.
    """
    if write_buffer_bytes < 1:
        raise InvalidInputError("expected at least 1 byte", field="writebuffer.size")
    if configured_bytes < 0:
        raise InvalidInputError("expected 0 bytes or more", field="arena-block-size")
    if configured_bytes:
        return configured_bytes
    eighth = write_buffer_bytes // 8
    return -(-eighth // _ARENA_ALIGNMENT) * _ARENA_ALIGNMENT


def native_arena_block_bytes(write_buffer_bytes: int = WRITE_BUFFER_BYTES, configured_bytes: int = 0) -> int:
    """Return the size of the blocks that the RocksDB of rocksdict takes: its default is Flink's, but never above 1 MiB.

    Source: RocksDB 7 and later, ``SanitizeOptions`` in ``db/column_family.cc``. Arguments and errors as for `arena_block_bytes`.
    """
    return configured_bytes or min(arena_block_bytes(write_buffer_bytes), _ARENA_CAP_BYTES)


def smallest_managed_bytes(arena_bytes: int, write_buffer_ratio: float = WRITE_BUFFER_RATIO) -> int:
    """Return the smallest budget of a slot at which an arena block of ``arena_bytes`` is not above the mutable limit."""
    ratio = exact(write_buffer_ratio)
    _check_ratios(ratio, Fraction(0))
    enough = _ceil(-(-arena_bytes * 8 // 7) * 3 / (2 * ratio))
    # The formula turned round is exact, and doubles may be a byte off.
    while _mutable_bytes(_write_buffer_bytes(enough, write_buffer_ratio)) < arena_bytes:
        enough += 1
    while _mutable_bytes(_write_buffer_bytes(enough - 1, write_buffer_ratio)) >= arena_bytes:
        enough -= 1
    return max(MANAGED_BYTES_MIN, enough)


def pool_problem(write_buffer_ratio: Fraction, high_prio_pool_ratio: Fraction) -> str | None:
    """Return the reason for which the two ratios conflict, or None: write buffers and the pool are parts of the same cache.

    Source: Apache Spark, which refuses to open RocksDB with such a pair; RocksDB itself would let write buffers evict the pool.
    """
    of_cache = 2 * write_buffer_ratio / (3 - write_buffer_ratio)
    if of_cache + high_prio_pool_ratio < 1:
        return None
    return (
        f"write buffers take {float(of_cache):.2f} of the cache (2r / (3 - r), r = writeBufferRatio = {float(write_buffer_ratio):g}),"
        f" so {float(high_prio_pool_ratio):g} more leaves no room for data blocks"
    )


def exact(ratio: float) -> Fraction:
    """Return a ratio as the decimal number it is written as; 0.3 is 3/10 and not the nearest binary fraction.

    Raises:
        InvalidInputError: It is infinite or no number.
    """
    if not math.isfinite(ratio):
        raise InvalidInputError("expected a number", field="ratio", remedy="Write it as 0.5")
    return Fraction(str(ratio))


def _write_buffer_bytes(managed_bytes: int, ratio: float) -> int:
    return int(2 * managed_bytes * ratio / 3)


def _mutable_bytes(write_buffer_bytes: int) -> int:
    return write_buffer_bytes * 7 // 8


def _check_ratios(ratio: Fraction, pool: Fraction) -> None:
    if not 0 < ratio < 1:
        raise InvalidInputError("expected a number between 0 and 1", field="write buffer ratio", remedy="Flink's default is 0.5")
    if not 0 <= pool < 1:
        raise InvalidInputError("expected a number from 0 to below 1", field="high-priority pool ratio", remedy="Flink's default is 0.1")
    if (problem := pool_problem(ratio, pool)) is not None:
        raise InvalidInputError(problem, field="high-priority pool ratio", remedy=POOL_REMEDY)


def _ceil(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)
