"""RocksDBMemory: the native memory that all RocksDB instances of one slot share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocksdict import Cache, WriteBufferManager

from statefulspark.errors import InvalidInputError

MANAGED_BYTES_MIN: Final = 8 << 20
"""Below this RocksDB's smallest buffers do not fit."""


@dataclass(frozen=True, slots=True)
class MemorySplit:
    """How a slot's managed memory is divided.

    RocksDB may hold half more write buffers than its limit while it flushes, so the limit is set lower than their share, and
    the block cache, to which write buffers are charged, takes the rest.

    Attributes:
        cache_bytes: Capacity of the block cache, write buffers included.
        write_buffer_bytes: Limit of all write buffers together.

    Source: Apache Flink, ``RocksDBMemoryControllerUtils``.
    """

    cache_bytes: int
    write_buffer_bytes: int

    @classmethod
    def of(cls, managed_bytes: int, write_buffer_ratio: float = 0.5) -> MemorySplit:
        """Divide ``managed_bytes`` (at least 8 MiB); ``write_buffer_ratio``, between 0 and 1, is the share of write buffers.

        Raises:
            InvalidInputError: An argument is out of bounds.
        """
        if managed_bytes < MANAGED_BYTES_MIN:
            raise InvalidInputError(f"{managed_bytes} bytes are too few", field="managed memory", remedy="Give at least 8 MiB per slot.")
        if not 0 < write_buffer_ratio < 1:
            raise InvalidInputError("expected a number between 0 and 1", field="write buffer ratio")
        return cls(int((3 - write_buffer_ratio) * managed_bytes / 3), int(2 * managed_bytes * write_buffer_ratio / 3))


class RocksDBMemory:
    """One block cache and one write buffer manager; give the same object to every `RocksDBStore` of the slot.

    Args:
        split: The sizes.
    """

    def __init__(self, split: MemorySplit) -> None:
        self.split = split
        self.cache = Cache(split.cache_bytes)
        self.write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(split.write_buffer_bytes, False, self.cache)

    @classmethod
    def managed(cls, managed_bytes: int, write_buffer_ratio: float = 0.5) -> RocksDBMemory:
        """Build from a slot's managed memory; see `MemorySplit.of`."""
        return cls(MemorySplit.of(managed_bytes, write_buffer_ratio))

    def usage_bytes(self) -> int:
        """Return what is in use now: blocks, index and filter blocks, write buffers."""
        return self.cache.get_usage()
