"""Loads the job's options factory, and calls it once before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.rocksdb.options import choose
from statefulspark.config.state_backend import StateBackendType
from statefulspark.errors import InvalidInputError
from statefulspark.exchange.rocksdb_choice import RocksDBChoice
from statefulspark.job.start.own_classes import pickled
from statefulspark.rocksdb.options_factory import FACTORY_FIELD
from statefulspark.slot.rocksdb_settings import report
from statefulspark.state.user_modules import imported_module


def rocksdb_choice(manifest: StatefulSparkJob) -> RocksDBChoice:
    """Return what the manifest chooses about RocksDB, and log which choices do not hold.

    Called after the pipeline was loaded, which makes the job's modules importable.

    Raises:
        InvalidInputError: See `checked_choice`.
    """
    choice = checked_choice(manifest)
    if manifest.spec.state_backend.type == StateBackendType.ROCKSDB:
        report(choice.final(), manifest.spec.memory_plan().split)
    return choice


def checked_choice(manifest: StatefulSparkJob) -> RocksDBChoice:
    """Return what the manifest chooses about RocksDB.

    Raises:
        InvalidInputError: The factory cannot be imported, raised or returned something else, one of its settings is wrong, or options do
            not go together.
    """
    backend = manifest.spec.state_backend
    if backend.type != StateBackendType.ROCKSDB:
        return RocksDBChoice()
    rocksdb = backend.rocksdb
    choice = RocksDBChoice(
        chosen=choose(rocksdb.predefined_options, rocksdb.options),
        factory=pickled(manifest, rocksdb.options_factory, _imported(rocksdb.options_factory), field=FACTORY_FIELD)
        if rocksdb.options_factory is not None
        else None,
        options=backend.options,
    )
    choice.final()  # raises if a setting is wrong
    return choice


def _imported(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    module = imported_module(module_name, field=FACTORY_FIELD)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise InvalidInputError(
            f"{module_name} has no class or function {attribute!r}",
            field=FACTORY_FIELD,
            remedy=f"Define `class {attribute}(RocksDBOptionsFactory)`, or `def {attribute}(options: RocksDBSettings) -> RocksDBSettings`",
        )
    return factory  # type: ignore[no-any-return]  # the user's code has no types
