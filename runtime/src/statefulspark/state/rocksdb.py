"""RocksDBStore: entries in RocksDB on the slot's local disk. The write-ahead log is off: changelogs and checkpoints are what lasts."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Checkpoint,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from statefulspark.errors import ClosedError, ConflictError, CorruptDataError, InternalError, UnavailableError
from statefulspark.state.rocksdb_memory import RocksDBMemory
from statefulspark.state.store import Change

_COLUMN_FAMILY: Final = "default"
_WRITE_ENTRIES: Final = 4096
_WRITE_BYTES: Final = 2 << 20
_METADATA_BLOCK_BYTES: Final = 16 << 10
_READ_KEYS: Final = 512
"""RocksDB's multi-get costs twice as much per key when it is given a hundred thousand keys at once."""


def _own_memory() -> RocksDBMemory:
    return RocksDBMemory.managed(64 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDBOptions:
    """How a RocksDB instance is opened.

    Attributes:
        memory: Shared by all instances of a slot; the default is 64 MiB of the instance's own.
        write_buffer_bytes: Size at which one write buffer is flushed; the shared limit may flush earlier.
        block_bytes: Size of a block on disk before compression.
        bloom_bits_per_key: Bits of the filter that saves reading a file for an absent key; 0 for no filter.
        compression: ``lz4``, ``zstd``, ``snappy`` or ``none``.
        background_jobs: Threads that flush and compact.
        target_file_bytes: Size of a file of level 1; uploads are per file, so this is also the grain of increments.
        level_base_bytes: Size of level 1.
        statistics: Count what the instance does, for native metrics that are tickers.
    """

    memory: RocksDBMemory = field(default_factory=_own_memory)
    write_buffer_bytes: int = 64 << 20
    block_bytes: int = 16 << 10
    bloom_bits_per_key: int = 10
    compression: str = "lz4"
    background_jobs: int = 2
    target_file_bytes: int = 64 << 20
    level_base_bytes: int = 256 << 20
    statistics: bool = False


class RocksDBStore:
    """A `KeyValueStore` in RocksDB.

    Args:
        path: Directory of the instance, made when missing; an existing one (also a snapshot) is opened as it is.
        options: Applied also to an existing instance.

    Raises:
        ConflictError: Another store has the directory open.
        CorruptDataError: Files are missing or damaged.
        UnavailableError: The disk is full or fails.
    """

    def __init__(self, path: Path, options: RocksDBOptions | None = None) -> None:
        self.path = path
        self.options = options or RocksDBOptions()
        self._write_options = WriteOptions()
        # The setter is a property, whatever the stub says.
        setattr(self._write_options, "disable_wal", True)  # noqa: B010
        # Snapshots come from another thread; closing must wait for them.
        self._closing = threading.Lock()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(f"the directory {path} cannot be made: {error.strerror}") from error
        # Kept: the statistics hang on it.
        self._native = opened = _native_options(self.options)
        with self._translated():
            # Without column_families= rocksdict takes the options stored by whoever wrote the files, and ours are ignored.
            self._db: Rdict | None = Rdict(str(path), options=opened, column_families={_COLUMN_FAMILY: opened})
        self._check_effective()

    def get(self, key: bytes) -> bytes | None:
        database = self._open()
        try:
            value: bytes | None = database.get(key)
        except Exception as error:
            # Not by the context manager below, which would cost more than the read.
            raise self._error(error) from error
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = []
        wanted = keys if isinstance(keys, list) else list(keys)
        with self._translated():
            get: Callable[[Any], Any] = self._open().get
            for start in range(0, len(wanted), _READ_KEYS):
                values.extend(get(wanted[start : start + _READ_KEYS]))
        return values

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        with self._translated():
            entries: Iterator[Any] = self._open().items(from_key=first, read_opt=bounds)
            yield from entries

    def write(self, changes: Iterable[Change]) -> None:
        database = self._open()
        remaining = iter(changes)
        with self._translated():
            # A batch is used up by writing it.
            while len(batch := _next_batch(remaining)):
                database.write(batch, self._write_options)

    def delete_range(self, first: bytes, end: bytes) -> None:
        with self._translated():
            self._open().delete_range(first, end, self._write_options)

    def flush(self) -> None:
        """Write all buffers to files; other threads run meanwhile."""
        with self._translated():
            self._open().flush(True)

    def snapshot(self, directory: Path) -> None:
        with self._closing, self._translated():
            database = self._open()
            directory.parent.mkdir(parents=True, exist_ok=True)
            # Flushed first without holding the interpreter lock, so that making the links has nothing left to write.
            database.flush(True)
            Checkpoint(database).create_checkpoint(str(directory))
        for log in directory.glob("*.log"):
            # The write-ahead log is off: the file is empty and would only be uploaded.
            log.unlink()

    def size_bytes(self) -> int:
        with self._translated():
            database = self._open()
            files = database.property_int_value("rocksdb.estimate-live-data-size") or 0
            return files + (database.property_int_value("rocksdb.cur-size-all-mem-tables") or 0)

    def property_int_value(self, name: str) -> int | None:
        """Return a property of the instance that is a number; None when it has none of that name."""
        with self._translated():
            return self._open().property_int_value(name)

    def statistics(self) -> str | None:
        """Return the counts of the instance since it was opened as RocksDB prints them; None without ``options.statistics``."""
        return self._native.get_statistics()

    def close(self) -> None:
        with self._closing:
            database, self._db = self._db, None
            if database is not None:
                database.close()

    def destroy(self) -> None:
        """Close and delete all files."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def _open(self) -> Rdict:
        if self._db is None:
            raise ClosedError(f"the state store {self.path} is closed")
        return self._db

    def _check_effective(self) -> None:
        capacity = self._open().property_int_value("rocksdb.block-cache-capacity")
        if capacity != self.options.memory.split.cache_bytes:
            self.close()
            raise InternalError(f"RocksDB opened {self.path} with a block cache of {capacity} bytes, not with the shared one")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn rocksdict's errors, which are plain exceptions with RocksDB's text, into ours."""
        try:
            yield
        except Exception as error:
            translated = self._error(error)
            if translated is error:
                raise
            raise translated from error

    def _error(self, error: Exception) -> Exception:
        if isinstance(error, DbClosedError):
            return ClosedError(f"the state store {self.path} is closed")
        if isinstance(error, OSError):
            return UnavailableError(f"the disk under {self.path} failed: {error.strerror}")
        if type(error) is not Exception:
            return error
        text = str(error)
        if "lock hold by current process" in text or "While lock file" in text:
            return ConflictError(f"the state store {self.path} is open elsewhere")
        if text.startswith("Corruption") or ("No such file" in text and ".sst" in text) or "does not exist (create_if_missing" in text:
            return CorruptDataError("the state store is damaged", path=str(self.path), found=_first_line(text))
        if "No space left" in text or text.startswith("IO error: NoSpace"):
            return UnavailableError(f"the disk under {self.path} is full", retry_after_s=10)
        if text.startswith("IO error"):
            return UnavailableError(f"the disk under {self.path} failed: {_first_line(text)}")
        return InternalError(f"RocksDB refused: {_first_line(text)}")


def _next_batch(changes: Iterator[Change]) -> WriteBatch:
    """Take as many changes as one write should have."""
    batch = WriteBatch(raw_mode=True)
    put, delete = batch.put, batch.delete
    size_bytes = 0
    for key, value in islice(changes, _WRITE_ENTRIES):
        if value is None:
            delete(key)
        else:
            put(key, value)
            size_bytes += len(value)
            if size_bytes > _WRITE_BYTES:
                break
    return batch


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0][:200]


def _native_options(options: RocksDBOptions) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(options.memory.cache)
    table.set_block_size(options.block_bytes)
    # Index and filter blocks count against the cache, so that their memory is bounded with the rest.
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    # A cache is cut into shards of a few hundred KiB to a few MiB, and a block larger than a shard is read from disk for every
    # look-up: 50 us instead of 1. The filter of one large file is that large, so filters and indexes are cut into small blocks.
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(_METADATA_BLOCK_BYTES)
    table.set_pin_top_level_index_and_filter(True)
    if options.bloom_bits_per_key:
        table.set_bloom_filter(options.bloom_bits_per_key, False)
    native = Options(raw_mode=True)
    native.create_if_missing(True)
    native.set_block_based_table_factory(table)
    native.set_write_buffer_manager(options.memory.write_buffers)
    native.set_write_buffer_size(options.write_buffer_bytes)
    native.set_compression_type(_COMPRESSION[options.compression]())
    native.set_max_background_jobs(options.background_jobs)
    native.set_target_file_size_base(options.target_file_bytes)
    native.set_max_bytes_for_level_base(options.level_base_bytes)
    native.set_max_open_files(-1)
    native.set_keep_log_file_num(1)
    native.set_max_log_file_size(1 << 20)
    native.set_stats_dump_period_sec(0)
    if options.statistics:
        native.enable_statistics()
    return native


_COMPRESSION: Final = {
    "lz4": DBCompressionType.lz4,
    "zstd": DBCompressionType.zstd,
    "snappy": DBCompressionType.snappy,
    "none": DBCompressionType.none,
}
