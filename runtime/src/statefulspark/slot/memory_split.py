"""Changes how a slot divides its native memory while it runs."""

from __future__ import annotations

from statefulspark.memory.tuning import MemoryTuning
from statefulspark.state.store.rocksdb_memory import RocksDBMemory


class TunedMemory:
    """A slot's native memory and the revision it has.

    Args:
        memory: Shared by the slot's stores.
        tuning: What it was made by.
    """

    def __init__(self, memory: RocksDBMemory, tuning: MemoryTuning) -> None:
        self.memory = memory
        self.tuning = tuning

    def follow(self, wanted: MemoryTuning | None) -> None:
        """Take over what the driver wants, which it has checked; None or the present revision changes nothing."""
        if wanted is None or wanted.revision == self.tuning.revision:
            return
        self.memory.resize(wanted.split())
        self.tuning = wanted
