"""Flink's names of RocksDB options and its predefined sets: from the manifest to `RocksDBSettings`.

Called by the manifest's models (a wrong value is refused before anything starts) and the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from statefulspark.config.values.durations import parse_duration
from statefulspark.errors import InvalidInputError
from statefulspark.rocksdb.chosen import Chosen
from statefulspark.rocksdb.settings import CompactionStyle, Compression, LogLevel, RocksDBSettings
from statefulspark.sizes import GIB, MIB, parse_size

_Word = TypeVar("_Word", bound=StrEnum)


class PredefinedOptions(StrEnum):
    """Flink's sets of RocksDB options."""

    DEFAULT = "DEFAULT"
    SPINNING_DISK_OPTIMIZED = "SPINNING_DISK_OPTIMIZED"
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = "SPINNING_DISK_OPTIMIZED_HIGH_MEM"
    FLASH_SSD_OPTIMIZED = "FLASH_SSD_OPTIMIZED"


PREDEFINED: Final[Mapping[PredefinedOptions, Mapping[str, Any]]] = {
    PredefinedOptions.DEFAULT: {},
    PredefinedOptions.SPINNING_DISK_OPTIMIZED: {
        "compaction_style": CompactionStyle.LEVEL,
        "dynamic_level_bytes": True,
        "background_jobs": 4,
        "open_files": -1,
    },
    PredefinedOptions.SPINNING_DISK_OPTIMIZED_HIGH_MEM: {
        "block_cache_bytes": 256 * MIB,
        "block_bytes": 128 << 10,
        "dynamic_level_bytes": True,
        "background_jobs": 4,
        "level_base_bytes": 1 * GIB,
        "open_files": -1,
        "write_buffer_count": 4,
        "write_buffers_to_merge": 3,
        "target_file_bytes": 256 * MIB,
        "write_buffer_bytes": 64 * MIB,
        "bloom_filter": True,
    },
    PredefinedOptions.FLASH_SSD_OPTIMIZED: {"background_jobs": 4, "open_files": -1},
}
"""Attributes of `RocksDBSettings` that each set gives. Source: Apache Flink, ``PredefinedOptions``."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: Flink's, without the prefix ``state.backend.rocksdb.``.
        attribute: Of `RocksDBSettings`.
        read: From the manifest's text; raises InvalidInputError.
        flink_default: Flink's default as text.
    """

    name: str
    attribute: str
    read: Callable[[str], Any]
    flink_default: str


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidInputError("not a whole number", remedy="Write digits only, for example 4") from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInputError("not a number", remedy="Write it like 10 or 9.5") from error


def _flag(text: str) -> bool:
    if (word := text.strip().lower()) not in {"true", "false"}:
        raise InvalidInputError("neither true nor false", remedy="Write true or false")
    return word == "true"


def _text(text: str) -> str:
    if not text.strip():
        raise InvalidInputError("empty", remedy="Name a folder")
    return text.strip()


def _word(kind: type[_Word]) -> Callable[[str], _Word]:
    def read(text: str) -> _Word:
        try:
            return kind(text.strip().upper())
        except ValueError as error:
            raise InvalidInputError("unknown", remedy=f"Use one of: {', '.join(kind)}") from error

    return read


def _style(text: str) -> CompactionStyle:
    style = text.strip().upper()
    if style == "FIFO":
        raise InvalidInputError("FIFO deletes the oldest files, and with them state", remedy="Use LEVEL or UNIVERSAL")
    if style == "NONE":
        raise InvalidInputError("without compaction, lookups read more files after every flush", remedy="Use LEVEL or UNIVERSAL")
    return _word(CompactionStyle)(style)


def _compressions(text: str) -> tuple[Compression, ...]:
    """Flink separates the items of a list by semicolons."""
    return tuple(_word(Compression)(part) for part in text.replace(",", ";").split(";") if part.strip())


def _not_block_based(text: str) -> None:
    if _flag(text):
        raise InvalidInputError("RocksDB 7 and later no longer have block-based filters", remedy="Remove it; filters cover whole files")


OPTIONS: Final[Mapping[str, Option]] = {
    option.name: option
    for option in (
        Option("thread.num", "background_jobs", _whole, "2"),
        Option("files.open", "open_files", _whole, "-1"),
        Option("log.level", "log_level", _word(LogLevel), "INFO_LEVEL"),
        Option("log.max-file-size", "log_file_bytes", parse_size, "25mb"),
        Option("log.file-num", "log_files", _whole, "4"),
        Option("log.dir", "log_dir", _text, "Flink's log folder"),
        Option("compaction.style", "compaction_style", _style, "LEVEL"),
        Option("compaction.level.use-dynamic-size", "dynamic_level_bytes", _flag, "false"),
        Option("compaction.level.target-file-size-base", "target_file_bytes", parse_size, "64mb"),
        Option("compaction.level.max-size-level-base", "level_base_bytes", parse_size, "256mb"),
        Option("compaction.filter.periodic-compaction-time", "periodic_compaction_ms", parse_duration, "30 d, only with TTL"),
        Option("compression.per.level", "compression", _compressions, "SNAPPY_COMPRESSION"),
        Option("writebuffer.size", "write_buffer_bytes", parse_size, "64mb"),
        Option("writebuffer.count", "write_buffer_count", _whole, "2"),
        Option("writebuffer.number-to-merge", "write_buffers_to_merge", _whole, "1"),
        Option("block.blocksize", "block_bytes", parse_size, "4kb"),
        Option("block.metadata-blocksize", "metadata_block_bytes", parse_size, "4kb"),
        Option("block.cache-size", "block_cache_bytes", parse_size, "8mb"),
        Option("write-batch-size", "write_batch_bytes", parse_size, "2mb"),
        Option("use-bloom-filter", "bloom_filter", _flag, "false"),
        Option("bloom-filter.bits-per-key", "bloom_bits_per_key", _number, "10"),
        Option("memory.partitioned-index-filters", "partitioned_index_filters", _flag, "false"),
        Option("arena-block-size", "arena_block_bytes", parse_size, "an eighth of a write buffer"),
    )
}
"""Options that take effect, by Flink's name."""

REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "compaction.filter.query-time-after-num-entries": (
        "rocksdict has no compaction filters in Python; expired state is swept between batches",
        "Remove it; see StateTtlConfig",
    ),
    "memory.managed": ("has its own field in the spec", "Set spec.stateBackend.rocksdb.memory.managed"),
    "memory.fixed-per-slot": ("has its own field in the spec", "Set spec.stateBackend.rocksdb.memory.fixedPerSlot"),
    "memory.fixed-per-tm": ("a slot is a process of its own", "Set spec.stateBackend.rocksdb.memory.fixedPerSlot"),
    "memory.write-buffer-ratio": ("has its own field in the spec", "Set spec.stateBackend.rocksdb.memory.writeBufferRatio"),
    "memory.high-prio-pool-ratio": ("has its own field in the spec", "Set spec.stateBackend.rocksdb.memory.highPrioPoolRatio"),
    "predefined-options": ("has its own field in the spec", "Set spec.stateBackend.rocksdb.predefinedOptions"),
    "options-factory": ("has its own field in the spec", "Set spec.stateBackend.rocksdb.optionsFactory"),
    "localdir": ("has its own field in the spec", "Set spec.stateBackend.rocksdb.localDir"),
    "timer-service.factory": ("has its own field in the spec", "Set spec.stateBackend.rocksdb.timerService"),
    "checkpoint.transfer.thread.num": (
        "files of a checkpoint go up eight at a time, and downloads have their own field",
        "Set spec.checkpointing.restoreThreads",
    ),
    "restore-overlap-fraction-threshold": ("the old store that holds most of a slot's key groups is always opened", "Remove it"),
    "use-ingest-db-restore-mode": ("key groups of further old stores are copied", "Remove it"),
    "incremental-restore-async-compact-after-rescale": ("what was cut off goes with the next compactions", "Remove it"),
    "rescaling.use-delete-files-in-range": ("what was cut off goes with the next compactions", "Remove it"),
}
"""Flink's names that take no effect here, each with the reason and the remedy."""

BLOCK_BASED: Final = "bloom-filter.block-based-mode"
"""Known to Flink, refused unless false."""


def read_option(name: str, text: str) -> dict[str, Any]:
    """Return the attribute of `RocksDBSettings` that an option of the manifest sets; empty when it says what is so anyway.

    Raises:
        InvalidInputError: The name is unknown, the value is wrong, or it can take no effect here; the text says why.
    """
    if name == BLOCK_BASED:
        _not_block_based(text)
        return {}
    if name in REFUSED:
        message, remedy = REFUSED[name]
        raise InvalidInputError(message, remedy=remedy)
    if name not in OPTIONS:
        raise InvalidInputError("is not a RocksDB option", remedy=f"Use one of: {', '.join(sorted(OPTIONS))}")
    option = OPTIONS[name]
    value = option.read(text)
    try:
        # The last check is that of the whole: this one is to name the option.
        replace(RocksDBSettings(write_buffer_count=64), **{option.attribute: value})
    except InvalidInputError as error:
        raise InvalidInputError(error.message, remedy=error.remedy) from error
    return {option.attribute: value}


def choose(predefined: PredefinedOptions, named: Mapping[str, str]) -> Chosen:
    """Bring the choices together; a later one wins: ours, ``predefined``, ``named``. An options factory comes on top of it.

    Raises:
        InvalidInputError: An option is wrong, or the options do not go together.
    """
    given: dict[str, Any] = dict(PREDEFINED[predefined])
    set_by = dict.fromkeys(given, "predefinedOptions")
    for name, text in named.items():
        read = read_option(name, text)
        given |= read
        set_by |= dict.fromkeys(read, "options")
    return Chosen(settings=RocksDBSettings(**given), set_by=set_by)
