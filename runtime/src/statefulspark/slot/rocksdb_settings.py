"""Options with which a slot opens its RocksDB instances, and warnings about choices that have no effect."""

from __future__ import annotations

import structlog

from statefulspark.exchange.config import SlotConfig
from statefulspark.memory.split import MemorySplit, native_arena_block_bytes
from statefulspark.rocksdb.chosen import Chosen, bound_of_instance, overridden_by
from statefulspark.sizes import format_size
from statefulspark.state.store.native_metrics import needs_statistics
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions

_log = structlog.get_logger("statefulspark.rocksdb")


def rocksdb_options(config: SlotConfig) -> RocksDBOptions | None:
    """Return the options of every RocksDB instance of the slot: one cache and one write buffer manager for all, or None.

    Raises:
        InvalidInputError: The budget is too small, or the options factory raised or returned something else.
    """
    if config.backend != "rocksdb":
        return None
    chosen = config.rocksdb.final()
    budget_bytes, split = config.budget_bytes, None
    if budget_bytes is not None:
        split = MemorySplit.of(budget_bytes, config.write_buffer_ratio, config.high_prio_pool_ratio)
    report(chosen, split)
    return RocksDBOptions(
        settings=chosen.settings,
        memory=RocksDBMemory(split) if split is not None else None,
        high_prio_pool_ratio=config.high_prio_pool_ratio,
        statistics=needs_statistics(config.native_metrics),
    )


def report(chosen: Chosen, split: MemorySplit | None) -> None:
    """Say in the log which choices do not hold, and how much memory there may be where none is shared."""
    if split is None:
        bound = format_size(bound_of_instance(chosen.settings))
        _log.warning("RocksDB's memory is not managed: each instance is limited only by its own options", instance_at_most=bound)
        return
    for each in overridden_by(split, chosen):
        _log.warning(
            "managed memory overrides a RocksDB option", option=each.option, set_by=each.set_by, wanted=each.wanted, effect=each.effect
        )
    for warning in split.warnings(native_arena_block_bytes(chosen.settings.write_buffer_bytes, chosen.settings.arena_block_bytes)):
        _log.warning(warning)
