"""Options factories as classes, under Flink's names, and what calls every kind of factory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from statefulspark.configuration import OPTIONS_FIELD, Configuration
from statefulspark.errors import InvalidInputError, type_name
from statefulspark.rocksdb.settings import RocksDBSettings

FACTORY_FIELD: Final = "spec.stateBackend.rocksdb.optionsFactory"
"""Manifest field of the options factory."""


class RocksDBOptionsFactory(ABC):
    """Sets RocksDB's options in code; named by ``stateBackend.rocksdb.optionsFactory: module:Class``.

    The driver makes one to check it before anything starts, and each slot makes its own, without arguments.

    Example:
        >>> from dataclasses import replace
        >>> class SmallBlocks(RocksDBOptionsFactory):
        ...     def create_options(self, current_options):
        ...         return replace(current_options, block_bytes=4 << 10)
        >>> SmallBlocks().create_options(RocksDBSettings()).block_bytes
        4096
    """

    @abstractmethod
    def create_options(self, current_options: RocksDBSettings) -> RocksDBSettings:
        """Return the settings to use.

        Args:
            current_options: What ``predefinedOptions`` and ``options`` make of our defaults.
        """


class ConfigurableRocksDBOptionsFactory(RocksDBOptionsFactory):
    """An options factory with settings of its own, from ``stateBackend.options``.

    Example:
        >>> from dataclasses import replace
        >>> class Blocks(ConfigurableRocksDBOptionsFactory):
        ...     def configure(self, configuration):
        ...         self.block_bytes = configuration.get_integer("my.block-bytes", 16 << 10)
        ...         return self
        ...     def create_options(self, current_options):
        ...         return replace(current_options, block_bytes=self.block_bytes)
        >>> Blocks().configure(Configuration({"my.block-bytes": "8192"})).create_options(RocksDBSettings()).block_bytes
        8192
    """

    @abstractmethod
    def configure(self, configuration: Configuration) -> RocksDBOptionsFactory:
        """Read the settings; called once, before ``create_options``.

        Args:
            configuration: All settings of ``stateBackend.options``.

        Returns:
            The factory to use, usually ``self``.
        """


OptionsFactory = Callable[[RocksDBSettings], RocksDBSettings] | type[RocksDBOptionsFactory]
"""A function that gets the settings that predefined and single options make and returns what to use, or a class that does."""


def settings_of(factory: OptionsFactory, current: RocksDBSettings, configuration: Configuration) -> RocksDBSettings:
    """Return what the factory makes of ``current``.

    Raises:
        InvalidInputError: The factory raised, is no factory or returned something else than settings; a setting of ``configuration``
            is not what the factory reads; or there are settings and the factory reads none.
    """
    name = getattr(factory, "__qualname__", type(factory).__name__)
    function = _function_of(factory, name, configuration)
    made = _called(name, function, current, "it receives a RocksDBSettings and returns one")
    if not isinstance(made, RocksDBSettings):
        raise InvalidInputError(
            f"the options factory {name} returned {type_name(type(made))}",
            field=FACTORY_FIELD,
            remedy="Return a RocksDBSettings, for example dataclasses.replace(options, block_bytes=32 << 10)",
        )
    return made


def _function_of(factory: OptionsFactory, name: str, configuration: Configuration) -> Callable[[RocksDBSettings], object]:
    configurable = isinstance(factory, type) and issubclass(factory, ConfigurableRocksDBOptionsFactory)
    if configuration.to_dict() and not configurable:
        raise InvalidInputError(
            f"has no effect: {name} is not a ConfigurableRocksDBOptionsFactory",
            field=OPTIONS_FIELD,
            remedy="Derive it from statefulspark.ConfigurableRocksDBOptionsFactory, or remove the options",
        )
    if not isinstance(factory, type):
        return factory
    if not issubclass(factory, RocksDBOptionsFactory):
        raise InvalidInputError(
            f"the class {name} is not a RocksDBOptionsFactory",
            field=FACTORY_FIELD,
            remedy="Derive it from statefulspark.RocksDBOptionsFactory",
        )
    made: object = _called(name, factory, None, "a slot makes it without arguments")
    if isinstance(made, ConfigurableRocksDBOptionsFactory):
        made = _called(name, made.configure, configuration, "configure receives a Configuration")
        if not isinstance(made, RocksDBOptionsFactory):
            raise InvalidInputError(
                f"configure of the options factory {name} returned {type_name(type(made))}",
                field=FACTORY_FIELD,
                remedy="End configure with `return self`",
            )
    return made.create_options  # type: ignore[attr-defined,no-any-return]  # made by a class derived from RocksDBOptionsFactory


def _called(name: str, function: Callable[..., Any], argument: object, contract: str) -> object:
    try:
        return function() if argument is None else function(argument)
    except Exception as error:
        if isinstance(error, InvalidInputError) and (error.field or "").startswith(f"{OPTIONS_FIELD}."):
            raise  # a setting is wrong, not the factory
        raise InvalidInputError(
            f"the options factory {name} raised {type(error).__name__}: {error}", field=FACTORY_FIELD, remedy=f"Correct it; {contract}"
        ) from error
