"""RocksDBSettings: every setting of a RocksDB instance that a job may change. Plain data; the state layer converts it to RocksDB's options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.sizes import GIB, KIB, MIB, format_size


class CompactionStyle(StrEnum):
    """Compaction style. RocksDB's two other styles lose state (FIFO) or never compact (NONE)."""

    LEVEL = "LEVEL"
    UNIVERSAL = "UNIVERSAL"


class Compression(StrEnum):
    """Compression of a level's blocks, by Flink's names."""

    NO_COMPRESSION = "NO_COMPRESSION"
    SNAPPY_COMPRESSION = "SNAPPY_COMPRESSION"
    ZLIB_COMPRESSION = "ZLIB_COMPRESSION"
    BZLIB2_COMPRESSION = "BZLIB2_COMPRESSION"
    LZ4_COMPRESSION = "LZ4_COMPRESSION"
    LZ4HC_COMPRESSION = "LZ4HC_COMPRESSION"
    ZSTD_COMPRESSION = "ZSTD_COMPRESSION"


class LogLevel(StrEnum):
    """Log level of RocksDB's own log file, by RocksDB's names."""

    DEBUG_LEVEL = "DEBUG_LEVEL"
    INFO_LEVEL = "INFO_LEVEL"
    WARN_LEVEL = "WARN_LEVEL"
    ERROR_LEVEL = "ERROR_LEVEL"
    FATAL_LEVEL = "FATAL_LEVEL"
    HEADER_LEVEL = "HEADER_LEVEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDBSettings:
    """Tuning of RocksDB. An options factory receives one and returns one, for example with `dataclasses.replace`.

    Attributes:
        background_jobs: Threads that flush and compact, 1 .. 64.
        open_files: Table files held open, 20 or more; -1 for all. A file that is not open costs a read of its footer and index.
        log_level: Level of RocksDB's log file.
        log_file_bytes: Size at which the log file is rotated, 64 KiB .. 1 GiB.
        log_files: Log files kept, 1 .. 1000.
        log_dir: Folder for log files; None puts them next to the data; they are deleted with it.
        compaction_style: ``LEVEL`` or ``UNIVERSAL``.
        dynamic_level_bytes: True if level sizes follow the size of the last level, which bounds the space that old values take.
        target_file_bytes: Size of a file of level 1, 64 KiB .. 8 GiB; uploads are per file, so this is also the grain of increments.
        level_base_bytes: Size of level 1, 64 KiB .. 1 TiB.
        periodic_compaction_ms: Age at which a file is compacted without other reason; 0 for never.
        compression: One for all levels, or one per level from level 0; the last one applies to all further levels.
        write_buffer_bytes: Size at which one write buffer is flushed, 64 KiB .. 8 GiB; the slot's shared limit may flush earlier.
        write_buffer_count: Write buffers held at a time, flushing ones included, 2 .. 64.
        write_buffers_to_merge: Full write buffers that are flushed together, from 1 to one below ``write_buffer_count``.
        block_bytes: Size of a data block on disk before compression, 512 B .. 64 MiB.
        metadata_block_bytes: Size of a block of a partitioned index or filter, 512 B .. 64 MiB.
        block_cache_bytes: Block cache of each instance where no memory is shared, 64 KiB .. 1 TiB.
        write_batch_bytes: Size of one write to RocksDB, up to 1 GiB; 0 bounds only the number of entries. A write grows in one block, which a slot's
            allocator takes from the system from 128 KiB on: writes of Flink's 2 MiB take 1.6 times as long.
        bloom_filter: True if a filter saves reading files for absent keys.
        bloom_bits_per_key: Bits of the filter for each key, 1 .. 64.
        partitioned_index_filters: True if index and filter are cut into blocks of ``metadata_block_bytes``, so that a look-up needs
            only the part for its key in the cache.
        arena_block_bytes: Pieces in which a write buffer takes memory, 4 KiB .. 2 GiB; 0 takes RocksDB's choice.

    Raises:
        InvalidInputError: A value is out of bounds or of the wrong type; ``field`` is the attribute.
    """

    background_jobs: int = 2
    open_files: int = -1
    log_level: LogLevel = LogLevel.INFO_LEVEL
    log_file_bytes: int = 1 * MIB
    log_files: int = 1
    log_dir: str | None = None
    compaction_style: CompactionStyle = CompactionStyle.LEVEL
    dynamic_level_bytes: bool = True
    target_file_bytes: int = 64 * MIB
    level_base_bytes: int = 256 * MIB
    periodic_compaction_ms: int = 0
    compression: tuple[Compression, ...] = (Compression.LZ4_COMPRESSION,)
    write_buffer_bytes: int = 64 * MIB
    write_buffer_count: int = 2
    write_buffers_to_merge: int = 1
    block_bytes: int = 16 * KIB
    metadata_block_bytes: int = 16 * KIB
    block_cache_bytes: int = 8 * MIB
    write_batch_bytes: int = 48 * KIB
    bloom_filter: bool = True
    bloom_bits_per_key: float = 10.0
    partitioned_index_filters: bool = True
    arena_block_bytes: int = 0

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            _check_number(name, getattr(self, name), least, most)
        for name in ("dynamic_level_bytes", "bloom_filter", "partitioned_index_filters"):
            _check_type(name, getattr(self, name), bool, "True or False")
        _check_type("log_level", self.log_level, LogLevel, "a LogLevel")
        _check_type("compaction_style", self.compaction_style, CompactionStyle, "a CompactionStyle")
        _check_type("log_dir", self.log_dir, str | None, "a path as text, or None")
        self._check_together()

    def _check_together(self) -> None:
        levels: Any = self.compression
        if not isinstance(levels, tuple) or not 1 <= len(levels) <= 7 or not all(isinstance(each, Compression) for each in levels):
            raise InvalidInputError("expected a tuple of 1 to 7 Compressions, one per level", field="compression")
        if 0 <= self.open_files < _OPEN_FILES_MIN:
            raise InvalidInputError("too few", field="open_files", remedy=f"Use -1 for all, or {_OPEN_FILES_MIN} or more")
        if 0 < self.arena_block_bytes < 4 * KIB:
            raise InvalidInputError("too small", field="arena_block_bytes", remedy="Use 0 for RocksDB's choice, or 4Ki or more")
        if self.write_buffers_to_merge >= self.write_buffer_count:
            raise InvalidInputError(
                f"{self.write_buffers_to_merge} full write buffers cannot exist, because one of the {self.write_buffer_count} is always being filled",
                field="write_buffers_to_merge",
                remedy="Keep it below write_buffer_count",
            )


_OPEN_FILES_MIN: Final = 20
"""RocksDB raises smaller numbers to this."""
_BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "background_jobs": (1, 64),
    "open_files": (-1, 1 << 20),
    "log_file_bytes": (64 * KIB, GIB),
    "log_files": (1, 1000),
    "target_file_bytes": (64 * KIB, 8 * GIB),
    "level_base_bytes": (64 * KIB, 1024 * GIB),
    "periodic_compaction_ms": (0, 100 * 366 * 86_400_000),
    "write_buffer_bytes": (64 * KIB, 8 * GIB),
    "write_buffer_count": (2, 64),
    "write_buffers_to_merge": (1, 63),
    "block_bytes": (512, 64 * MIB),
    "metadata_block_bytes": (512, 64 * MIB),
    "block_cache_bytes": (64 * KIB, 1024 * GIB),
    "write_batch_bytes": (0, GIB),
    "bloom_bits_per_key": (1, 64),
    "arena_block_bytes": (0, 2 * GIB),
}


def _check_number(name: str, value: Any, least: float, most: float) -> None:
    kinds = (int, float) if name == "bloom_bits_per_key" else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise InvalidInputError(f"expected a number, not {type_name(type(value))}", field=name)
    if not least <= value <= most:
        as_text = format_size if name.endswith("_bytes") else str
        raise InvalidInputError(f"expected {as_text(int(least))} .. {as_text(int(most))}", field=name)


def _check_type(name: str, value: Any, kind: Any, expected: str) -> None:
    if not isinstance(value, kind):
        raise InvalidInputError(f"expected {expected}, not {type_name(type(value))}", field=name)
