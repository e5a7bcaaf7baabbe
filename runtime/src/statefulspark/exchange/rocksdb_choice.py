"""RocksDBChoice: what a job has chosen about RocksDB, on its way from the driver to the slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import cloudpickle

from statefulspark.configuration import Configuration
from statefulspark.rocksdb.chosen import Chosen, with_factory
from statefulspark.rocksdb.options_factory import OptionsFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDBChoice:
    """Plain picklable data."""

    chosen: Chosen = field(default_factory=Chosen)
    """Combination of predefined and single options."""
    factory: bytes | None = None
    """cloudpickle of the options factory: the job's own modules need not be importable on the slot's machine."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings of the factory's own."""

    def final(self) -> Chosen:
        """Return the options of this process, after running the factory.

        Raises:
            InvalidInputError: The factory raised or returned something else, or one of its settings is wrong.
        """
        if self.factory is None:
            return self.chosen
        factory: OptionsFactory = cloudpickle.loads(self.factory)
        return with_factory(self.chosen, factory, Configuration(self.options))
