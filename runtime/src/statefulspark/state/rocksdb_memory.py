"""RocksDBMemory: the native memory that all RocksDB instances of one slot share."""

from __future__ import annotations

from rocksdict import Cache, WriteBufferManager

from statefulspark.memory.split import HIGH_PRIO_POOL_RATIO, WRITE_BUFFER_RATIO, MemorySplit


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
    def managed(
        cls, managed_bytes: int, write_buffer_ratio: float = WRITE_BUFFER_RATIO, high_prio_pool_ratio: float = HIGH_PRIO_POOL_RATIO
    ) -> RocksDBMemory:
        """Build from a slot's managed memory; see `MemorySplit.of`."""
        return cls(MemorySplit.of(managed_bytes, write_buffer_ratio, high_prio_pool_ratio))

    def resize(self, split: MemorySplit) -> None:
        """Divide anew while stores are open: blocks that no longer fit are evicted now, write buffers flushed with the next writes."""
        # What shrinks goes first, so that the sum never exceeds the larger of both splits.
        if split.write_buffer_bytes < self.split.write_buffer_bytes:
            self.write_buffers.set_buffer_size(split.write_buffer_bytes)
            self.cache.set_capacity(split.cache_bytes)
        else:
            self.cache.set_capacity(split.cache_bytes)
            self.write_buffers.set_buffer_size(split.write_buffer_bytes)
        self.split = split

    def usage_bytes(self) -> int:
        """Return what is in use now: blocks, index and filter blocks, write buffers."""
        return self.cache.get_usage()
