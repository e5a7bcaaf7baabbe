"""RocksDBMemory: the native memory shared by all RocksDB instances of one slot."""

from __future__ import annotations

from typing import Final

from rocksdict import Cache, WriteBufferManager

from statefulspark.errors import InvalidInputError
from statefulspark.memory.split import HIGH_PRIO_POOL_RATIO, WRITE_BUFFER_RATIO, MemorySplit
from statefulspark.state.store.write_buffer_limit import WriteBufferLimit

_ENTRY_BYTES_UNKNOWN: Final = 0
"""Lets the cache find out how large its entries are."""


class RocksDBMemory:
    """One block cache and one write buffer manager; give the same object to every `RocksDBStore` of the slot.

    Index and filter blocks have a reserved part of the cache: those of as many table files as fit into it are pinned, so nothing
    evicts them; those of other files are cached like data. Each store says what it has pinned, because the part is the slot's.

    The cache is RocksDB's HyperClockCache. rocksdict's other one, an LRU cache, protects every block that was read twice up to half of
    the cache, whatever the ratio, and goes 6 % above its capacity where this one keeps to it (docs/rocksdb.md).

    Args:
        split: The sizes.

    Attributes:
        split: The sizes; None where nothing is shared.
        cache: Holds blocks, and is charged with the write buffers.
        write_buffers: Flushes when all write buffers together reach their limit; None where nothing is shared.
        write_buffer_limit: Blocks writers while write buffers are far above their limit; None if nothing is shared.
    """

    def __init__(self, split: MemorySplit | None, *, cache_bytes: int = 0, high_prio_bytes: int = 0) -> None:
        self.split = split
        self.cache_bytes = split.cache_bytes if split is not None else cache_bytes
        self.high_prio_bytes = split.high_prio_bytes if split is not None else high_prio_bytes
        self.cache = Cache.new_hyper_clock_cache(self.cache_bytes, _ENTRY_BYTES_UNKNOWN)
        self.write_buffers: WriteBufferManager | None = None
        self.write_buffer_limit: WriteBufferLimit | None = None
        if split is not None:
            self.write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(split.write_buffer_bytes, False, self.cache)
            self.write_buffer_limit = WriteBufferLimit(self.write_buffers)
        self._pinned: dict[str, int] = {}

    @classmethod
    def managed(
        cls, managed_bytes: int, write_buffer_ratio: float = WRITE_BUFFER_RATIO, high_prio_pool_ratio: float = HIGH_PRIO_POOL_RATIO
    ) -> RocksDBMemory:
        """Build from a slot's managed memory; see `MemorySplit.of`."""
        return cls(MemorySplit.of(managed_bytes, write_buffer_ratio, high_prio_pool_ratio))

    @classmethod
    def of_instance(cls, cache_bytes: int, high_prio_pool_ratio: float = HIGH_PRIO_POOL_RATIO) -> RocksDBMemory:
        """Build the cache of one instance that shares nothing; its write buffers are bounded by its own options."""
        return cls(None, cache_bytes=cache_bytes, high_prio_bytes=int(cache_bytes * high_prio_pool_ratio))

    def resize(self, split: MemorySplit) -> None:
        """Change the split while stores are open. The next reads and writes release memory above a new limit.

        Raises:
            InvalidInputError: Nothing is shared.
        """
        if self.write_buffers is None:
            raise InvalidInputError(
                "RocksDB instances share no memory",
                field="spec.stateBackend.rocksdb.memory.managed",
                remedy="Set managed: true or fixedPerSlot",
            )
        # Shrink first, so that the sum never exceeds the larger of both splits.
        if split.write_buffer_bytes < self.write_buffers.get_buffer_size():
            self.write_buffers.set_buffer_size(split.write_buffer_bytes)
            self.cache.set_capacity(split.cache_bytes)
        else:
            self.cache.set_capacity(split.cache_bytes)
            self.write_buffers.set_buffer_size(split.write_buffer_bytes)
        self.split, self.cache_bytes, self.high_prio_bytes = split, split.cache_bytes, split.high_prio_bytes

    def pinnable_bytes(self, store: str) -> int:
        """Return the bytes that ``store`` may pin: the high-priority pool minus those that the other stores have pinned."""
        return self.high_prio_bytes - sum(pinned for other, pinned in list(self._pinned.items()) if other != store)

    def set_pinned(self, store: str, size_bytes: int) -> None:
        """Record how much ``store`` has pinned; 0 if it is closed."""
        self._pinned.pop(store, None)
        if size_bytes:
            self._pinned[store] = size_bytes

    def pinned_bytes(self) -> int:
        """Return the bytes of pinned index and filter blocks in all stores, as estimated by the stores."""
        return sum(list(self._pinned.values()))

    def usage_bytes(self) -> int:
        """Return the bytes in use now: blocks, index and filter blocks, write buffers."""
        return self.cache.get_usage()
