"""A job's RocksDB settings and who set them: the options factory, and settings that managed memory overrides.

The driver evaluates this once before anything starts, and each slot again, with the factory as it runs there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from statefulspark.configuration import Configuration
from statefulspark.memory.split import MemorySplit
from statefulspark.rocksdb.options_factory import OptionsFactory, settings_of
from statefulspark.rocksdb.settings import RocksDBSettings
from statefulspark.sizes import format_size, short_size

_NO_OPTIONS: Final = Configuration()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The settings of a job, and who chose what. Picklable.

    Attributes:
        settings: Settings to open RocksDB with.
        set_by: By attribute: ``predefinedOptions``, ``options`` or ``optionsFactory``, where it is not our default.
    """

    settings: RocksDBSettings = field(default_factory=RocksDBSettings)
    set_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Overridden:
    """A choice that managed memory takes no account of, or only in part.

    Attributes:
        option: Flink's name.
        set_by: Who chose it, as in `Chosen`.
        wanted: The value, as text.
        effect: The value in effect instead.
    """

    option: str
    set_by: str
    wanted: str
    effect: str


def with_factory(chosen: Chosen, factory: OptionsFactory, configuration: Configuration = _NO_OPTIONS) -> Chosen:
    """Return what the factory makes of it, which wins over everything else.

    Raises:
        InvalidInputError: As `settings_of` says.
    """
    made = settings_of(factory, chosen.settings, configuration)
    changed = [each.name for each in fields(made) if getattr(made, each.name) != getattr(chosen.settings, each.name)]
    return Chosen(settings=made, set_by={**chosen.set_by, **dict.fromkeys(changed, "optionsFactory")})


def overridden_by(split: MemorySplit, chosen: Chosen) -> tuple[Overridden, ...]:
    """Return the choices that do not hold within a slot's shared memory; our own defaults are not counted.

    Source: Apache Flink, ``RocksDBResourceContainer``: with managed memory the shared cache takes the place of each one's own, and the
    write buffer manager flushes when all write buffers together reach their limit.
    """
    settings, found = chosen.settings, []
    limit, mutable = short_size(split.write_buffer_bytes), short_size(split.mutable_bytes)
    cases = (
        ("block.cache-size", "block_cache_bytes", True, f"one cache of {short_size(split.cache_bytes)} for the whole slot"),
        (
            "writebuffer.size",
            "write_buffer_bytes",
            settings.write_buffer_bytes > split.mutable_bytes,
            f"a write buffer is flushed at {mutable}: all of the slot share {limit}",
        ),
        (
            "writebuffer.count",
            "write_buffer_count",
            settings.write_buffer_count * settings.write_buffer_bytes > split.write_buffer_bytes,
            f"all write buffers of the slot together take {limit}",
        ),
    )
    for option, attribute, holds_not, effect in cases:
        if holds_not and attribute in chosen.set_by:
            value = getattr(settings, attribute)
            wanted = format_size(value) if attribute.endswith("_bytes") else str(value)
            found.append(Overridden(option, chosen.set_by[attribute], wanted, effect))
    return tuple(found)


def bound_of_instance(settings: RocksDBSettings) -> int:
    """Return the most bytes that one instance takes where no memory is shared: its cache and its write buffers.

    A slot has one instance, and one more for each batch that outgrew its memory and is not yet in the store. Table readers, iterators and
    compactions come on top, as with shared memory.
    """
    return settings.block_cache_bytes + settings.write_buffer_count * settings.write_buffer_bytes
