"""The split of managed memory as it travels from the driver to slots while the job runs."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.memory.split import MemorySplit


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTuning:
    """Ratios by which slots divide their managed memory.

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
