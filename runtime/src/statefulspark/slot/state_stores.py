"""Factory for the stores of a slot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cloudpickle

from statefulspark.configuration import Configuration
from statefulspark.exchange.config import SlotConfig
from statefulspark.slot.rocksdb_settings import rocksdb_options
from statefulspark.state.api.state_backends import SlotResources, StateBackend
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.open_store import open_store
from statefulspark.state.store.own_backend import imported_backend, is_own_backend, own_store_opener


def store_opener(config: SlotConfig) -> Callable[[Path], KeyValueStore]:
    """Return a function that opens a store of the job's kind in a folder, within the slot's resources.

    Raises:
        InvalidInputError: The settings of RocksDB do not hold, or the job's own backend cannot be made.
    """
    if not is_own_backend(config.backend):
        options = rocksdb_options(config)
        return lambda path: open_store(config.backend, path, options, heap_timers=config.heap_timers)
    own: type[StateBackend] = (
        cloudpickle.loads(config.backend_class) if config.backend_class is not None else imported_backend(config.backend)
    )
    return own_store_opener(own, Configuration(config.backend_options), SlotResources(managed_bytes=config.managed_bytes))
