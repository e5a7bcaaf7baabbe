"""RocksDBChoice: what a job has chosen about RocksDB, on its way from the driver to the slots."""

from __future__ import annotations

from dataclasses import dataclass, field

import cloudpickle

from statefulspark.config.rocksdb_options import Chosen, OptionsFactory, PredefinedOptions, choose


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDBChoice:
    """Plain picklable data."""

    predefined: PredefinedOptions = PredefinedOptions.DEFAULT
    """The set to start from."""
    named: dict[str, str] = field(default_factory=dict)
    """Single options by Flink's names."""
    factory: bytes | None = None
    """cloudpickle of the options factory: the job's own modules need not be importable on the slot's machine."""

    def chosen(self) -> Chosen:
        """Bring the choices together; the factory runs.

        Raises:
            InvalidInputError: The factory raised, or returned something else.
        """
        factory: OptionsFactory | None = cloudpickle.loads(self.factory) if self.factory is not None else None
        return choose(self.predefined, self.named, factory)
