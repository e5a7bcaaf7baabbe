"""The split of managed memory as it travels from the driver to slots while the job runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from statefulspark.memory.split import MemorySplit
from statefulspark.state.rocksdb_memory import RocksDBMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTuning:
    """What slots divide their managed memory by.

    Attributes:
        revision: 0 is the manifest's; grows with each change in this driver.
        managed_bytes: Per slot.
        write_buffer_ratio: As in `MemorySplit`.
        high_prio_pool_ratio: As in `MemorySplit`.
    """

    revision: int
    managed_bytes: int
    write_buffer_ratio: float
    high_prio_pool_ratio: float

    def split(self) -> MemorySplit:
        """Return the sizes.

        Raises:
            InvalidInputError: They do not work; the text says why.
        """
        return MemorySplit.of(self.managed_bytes, self.write_buffer_ratio, self.high_prio_pool_ratio)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "revision": self.revision,
            "managed_bytes": self.managed_bytes,
            "write_buffer_ratio": self.write_buffer_ratio,
            "high_prio_pool_ratio": self.high_prio_pool_ratio,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MemoryTuning:
        """Rebuild from `to_json`."""
        return cls(**data)


class TunedMemory:
    """A slot's native memory and the revision it has.

    Args:
        memory: Shared by the slot's stores.
        tuning: What it was made by.
    """

    def __init__(self, memory: RocksDBMemory, tuning: MemoryTuning) -> None:
        self.memory = memory
        self.tuning = tuning

    def follow(self, wanted: Mapping[str, Any] | None) -> None:
        """Take over what the driver wants, which it has checked; None or the present revision changes nothing."""
        if wanted is None or wanted["revision"] == self.tuning.revision:
            return
        tuning = MemoryTuning.from_json(wanted)
        self.memory.resize(tuning.split())
        self.tuning = tuning
