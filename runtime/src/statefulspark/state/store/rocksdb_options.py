"""Converts a `RocksDBSettings` to RocksDB's own options, and reads back the options in effect.

rocksdict has setters for only some of RocksDB's options (none for the log level, the age at which files are compacted, or what is
pinned in the cache). RocksDB can read all of them from an options file, and so can rocksdict. So we write an options file with
the few lines that differ from RocksDB's defaults, and load it with the shared cache.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocksdict import Env, Options

from statefulspark.rocksdb.settings import CompactionStyle, Compression, RocksDBSettings
from statefulspark.state.store.rocksdb_memory import RocksDBMemory

COLUMN_FAMILY: Final = "default"
_DATABASE: Final = "DBOptions"
_FAMILY: Final = f'CFOptions "{COLUMN_FAMILY}"'
TABLE: Final = f'TableOptions/BlockBasedTable "{COLUMN_FAMILY}"'
"""Name of the section of options of table files."""

_FILE_VERSION: Final = {"rocksdb_version": "9.8.4", "options_file_version": "1.1"}
"""RocksDB reads files of its own version and of older ones."""

_ROCKSDICT_CONFIG: Final = '{"raw_mode":true,"prefix_extractors":{}}'
"""rocksdict keeps its own options beside RocksDB's: keys and values are bytes."""

_DELETES_WINDOW: Final = 4096
_DELETES_IN_WINDOW_NEVER: Final = 1 << 30
_DELETES_RATIO: Final = 0.9
"""A table file in which nine of ten entries are deletes is compacted at once. Such files come from the cleanup of expired entries in a slot that
receives no rows, where nothing else would start a compaction and free their space. Timers that come and go fill files with deletes by half: to
compact those at once, or because of a window full of deletes, made compactions write four times as much."""

_COMPRESSIONS: Final = {
    Compression.NO_COMPRESSION: "kNoCompression",
    Compression.SNAPPY_COMPRESSION: "kSnappyCompression",
    Compression.ZLIB_COMPRESSION: "kZlibCompression",
    Compression.BZLIB2_COMPRESSION: "kBZip2Compression",
    Compression.LZ4_COMPRESSION: "kLZ4Compression",
    Compression.LZ4HC_COMPRESSION: "kLZ4HCCompression",
    Compression.ZSTD_COMPRESSION: "kZSTD",
}
_STYLES: Final = {CompactionStyle.LEVEL: "kCompactionStyleLevel", CompactionStyle.UNIVERSAL: "kCompactionStyleUniversal"}

_UNIVERSAL: Final = {
    # Files of flushes wait until so many are merged at once. Measured uploads per changed byte (docs/rocksdb.md): 2.7 with 16, 3.6 with 8.
    "level0_file_num_compaction_trigger": "16",
    # By default, RocksDB slows writes down from 20 files: a merge of everything, during which there are no others, would do so.
    "level0_slowdown_writes_trigger": "32",
    "level0_stop_writes_trigger": "48",
    # Newer files as large as the oldest, which holds the rest, start a merge of everything. It bounds the space to twice that of the entries.
    "compaction_options_universal": "{max_size_amplification_percent=100;}",
}
"""Options of universal compaction. Many files make incremental checkpoints small and look-ups slow; that is what this style is chosen for."""

Sections = Mapping[str, Mapping[str, str]]
"""Options as text by section and RocksDB's name."""


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """The options that `Rdict` is opened with.

    Attributes:
        database: Options of the instance.
        family: Options of its only column family; without them rocksdict uses those stored with the files.
    """

    database: Options
    family: Options


def native_sections(settings: RocksDBSettings, *, pinned: bool, compacting: bool = True) -> Sections:
    """Return the options that differ from RocksDB's defaults or are worth being checked.

    Args:
        settings: The job's choices.
        pinned: True if index and filter blocks of files opened from now on stay in the cache for good.
        compacting: False if RocksDB merges no files until it is told to.
    """
    return {
        _DATABASE: {
            "create_if_missing": "true",
            "max_background_jobs": str(settings.background_jobs),
            "max_open_files": str(settings.open_files),
            "info_log_level": settings.log_level.value,
            "max_log_file_size": str(settings.log_file_bytes),
            "keep_log_file_num": str(settings.log_files),
            "stats_dump_period_sec": "0",
        },
        _FAMILY: _family(settings) | {"disable_auto_compactions": _flag(not compacting)},
        TABLE: _table(settings) | {"metadata_cache_options": pinning(pinned)},
    }


def pinning(pinned: bool) -> str:
    """Return the value of ``metadata_cache_options`` that pins all index and filter blocks of a file, or none."""
    tier = "kAll" if pinned else "kNone"
    return f"{{unpartitioned_pinning={tier};partition_pinning={tier};top_level_index_pinning={tier};}}"


def _family(settings: RocksDBSettings) -> dict[str, str]:
    levels = [_COMPRESSIONS[each] for each in settings.compression]
    family = {
        "compaction_style": _STYLES[settings.compaction_style],
        # RocksDB switches it off itself where there are no levels.
        "level_compaction_dynamic_level_bytes": _flag(settings.dynamic_level_bytes and settings.compaction_style is CompactionStyle.LEVEL),
        "target_file_size_base": str(settings.target_file_bytes),
        "max_bytes_for_level_base": str(settings.level_base_bytes),
        "compression": levels[-1],
        "write_buffer_size": str(settings.write_buffer_bytes),
        "max_write_buffer_number": str(settings.write_buffer_count),
        "min_write_buffer_number_to_merge": str(settings.write_buffers_to_merge),
        "table_factory": "BlockBasedTable",
        # A buffer remembers by key group and state where it added an entry last. Batches come in the order of keys, so the next one is near.
        "memtable_insert_with_hint_prefix_extractor": "rocksdb.FixedPrefix.4",
    }
    if settings.compaction_style is CompactionStyle.UNIVERSAL:
        family |= _UNIVERSAL
    if len(levels) > 1:
        family["compression_per_level"] = ":".join(levels)
    if settings.periodic_compaction_ms:
        family["periodic_compaction_seconds"] = str(max(1, settings.periodic_compaction_ms // 1000))
    if settings.arena_block_bytes:
        family["arena_block_size"] = str(settings.arena_block_bytes)
    return family


def _table(settings: RocksDBSettings) -> dict[str, str]:
    return {
        "block_size": str(settings.block_bytes),
        "metadata_block_size": str(settings.metadata_block_bytes),
        # Index and filter blocks count against the cache, so that their memory is bounded with the rest.
        "cache_index_and_filter_blocks": "true",
        "cache_index_and_filter_blocks_with_high_priority": "true",
        # In one block the filter of a large file is a MiB: read as a whole and evicting a MiB, for a look-up that needs a few KiB.
        "index_type": "kTwoLevelIndexSearch" if settings.partitioned_index_filters else "kBinarySearch",
        "partition_filters": _flag(settings.partitioned_index_filters and settings.bloom_filter),
        "filter_policy": f"bloomfilter:{settings.bloom_bits_per_key:g}:false" if settings.bloom_filter else "nullptr",
    }


def load_native(sections: Sections, memory: RocksDBMemory, settings: RocksDBSettings, *, statistics: bool = False) -> NativeOptions:
    """Return rocksdict's options.

    Args:
        sections: From `native_sections`.
        memory: Cache and write buffer manager to use.
        settings: For what options files cannot say.
        statistics: True to enable RocksDB's statistics; read them with `Options.get_statistics` of ``database``.
    """
    with tempfile.TemporaryDirectory(prefix="statefulspark-options-") as folder:
        (Path(folder) / "OPTIONS-000001").write_text(_as_file(sections))
        (Path(folder) / "rocksdict-config.json").write_text(_ROCKSDICT_CONFIG)
        database, families = Options.load_latest(folder, Env(), False, memory.cache)
    family = families[COLUMN_FAMILY]
    family.add_compact_on_deletion_collector_factory(_DELETES_WINDOW, _DELETES_IN_WINDOW_NEVER, _DELETES_RATIO)
    if memory.write_buffers is not None:
        for options in (database, family):
            options.set_write_buffer_manager(memory.write_buffers)
    if settings.log_dir is not None:
        database.set_db_log_dir(settings.log_dir)
    if statistics:
        database.enable_statistics()
    return NativeOptions(database, family)


def effective_sections(directory: Path) -> Sections:
    """Return the options in effect of an instance that is open in ``directory``: RocksDB writes it there whenever it changes.

    Raises:
        OSError: There is no options file.
    """
    # Beside them there can be one that RocksDB was about to write when its process died.
    files = [path for path in directory.glob("OPTIONS-*") if not path.suffix]
    found: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    if not files:
        raise FileNotFoundError(f"{directory} has no OPTIONS file")
    for line in max(files, key=lambda path: int(path.name.removeprefix("OPTIONS-"))).read_text().splitlines():
        text = line.strip()
        if text.startswith("["):
            section = found.setdefault(text[1:-1], {})
        elif "=" in text and not text.startswith("#"):
            name, _, value = text.partition("=")
            section[name] = value
    return found


def differences(wanted: Sections, effective: Sections) -> Iterator[str]:
    """Yield a line for each option that is not in effect."""
    for section, options in wanted.items():
        for name, value in options.items():
            found = effective.get(section, {}).get(name)
            if found is None or not _parts(value) <= _parts(found):
                yield f"{name} is {found} instead of {value}"


def _as_file(sections: Sections) -> str:
    lines = []
    for section, options in {"Version": _FILE_VERSION, **sections}.items():
        lines += [f"[{section}]", *(f"  {name}={value}" for name, value in options.items())]
    return "\n".join(lines) + "\n"


def _parts(value: str) -> set[str]:
    """The parts of a nested value, of which we give some and RocksDB writes all, in an order of its own."""
    return set(value.strip("{}").rstrip(";").split(";"))


def _flag(value: bool) -> str:
    return "true" if value else "false"
