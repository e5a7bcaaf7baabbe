"""RocksDBStore: keeps entries in RocksDB on local disk. The write-ahead log is off: changelogs and checkpoints provide durability."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from rocksdict import Checkpoint, DbClosedError, IngestExternalFileOptions, Rdict, ReadOptions, WriteBatch, WriteOptions

from statefulspark.errors import ClosedError, ConflictError, CorruptDataError, InternalError, StatefulSparkError
from statefulspark.memory.split import HIGH_PRIO_POOL_RATIO
from statefulspark.rocksdb.settings import RocksDBSettings
from statefulspark.state.store.base import Change, StoreSnapshot
from statefulspark.state.store.compaction_pause import CompactionPause
from statefulspark.state.store.full_disk import FullDisk
from statefulspark.state.store.metadata_pinning import Metadata, MetadataPinning, TableFile
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_options import (
    COLUMN_FAMILY,
    NativeOptions,
    Sections,
    differences,
    effective_sections,
    load_native,
    native_sections,
    pinning,
)
from statefulspark.state.store.table_files import write_table_files
from statefulspark.state.store.write_batches import WRITE_ENTRIES, next_batch
from statefulspark.storage.local.os_errors import disk_failure

_WRITE_BYTES_MAX: Final = 1 << 30
_INDEX: Final = re.compile(r"index block size [^;]*=(\d+)")
_FILTER: Final = re.compile(r"filter block size=(\d+)")
_READ_KEYS: Final = 512
"""RocksDB's multi-get costs twice as much per key when it is given a hundred thousand keys at once."""
_READ_BYTES: Final = 1 << 20
"""Values that one multi-get should return: it keeps their blocks in the cache and the interpreter to itself until it has all of them.
Of values of 40 KB, 64 at once cost a third of the time of 512 at once."""
_READ_KEYS_FIRST: Final = 32
"""Asked for before it is known how large values are."""

_SCAN_FIRST: Final = 16
"""Entries of a scan that are read one by one. To find out whether more have been read to the end costs about as much as these."""


def _own_memory() -> RocksDBMemory:
    return RocksDBMemory.managed(64 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDBOptions:
    """Options for opening a RocksDB instance.

    Attributes:
        settings: Settings that a job may change.
        memory: Shared by all instances of a slot; the default is 64 MiB of the instance's own, None lets it take what ``settings`` says.
        high_prio_pool_ratio: Share of the instance's own cache that index and filter blocks may pin, where ``memory`` is None.
        statistics: True to enable RocksDB's statistics.
    """

    settings: RocksDBSettings = field(default_factory=RocksDBSettings)
    memory: RocksDBMemory | None = field(default_factory=_own_memory)
    high_prio_pool_ratio: float = HIGH_PRIO_POOL_RATIO
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

    Attributes:
        damage: Why only another slot, which restores, can go on: the first damage that any reader has found in its files, or that RocksDB takes
            no writes since the disk was full. None while there is nothing of the kind.
    """

    def __init__(self, path: Path, options: RocksDBOptions | None = None) -> None:
        self.path = path
        self.damage: CorruptDataError | None = None
        self._full_disk = FullDisk(path)
        self.options = options or RocksDBOptions()
        settings = self.options.settings
        self.memory = self.options.memory or RocksDBMemory.of_instance(settings.block_cache_bytes, self.options.high_prio_pool_ratio)
        self._write_options = WriteOptions()
        # The setter is a property, whatever the stub says.
        setattr(self._write_options, "disable_wal", True)  # noqa: B010
        # Snapshots come from another thread; closing must wait for them.
        self._closing = threading.Lock()
        self._following = threading.Lock()
        self._seen: tuple[int | None, int] | None = None
        self._write_bytes = settings.write_batch_bytes or _WRITE_BYTES_MAX
        self._read_keys = _READ_KEYS_FIRST
        self._read_bytes = 0
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_failure(path, error.strerror or str(error)) from error
        self._db: Rdict | None = None
        self._native: NativeOptions
        self._compaction_pause = CompactionPause(len(list(path.glob("*.sst"))))
        self._pins = self._opened()
        self._follow_files()
        if self.memory.write_buffer_limit is not None:
            self.memory.write_buffer_limit.join(self)

    def native(self) -> Rdict | None:
        """Return the open instance, None when the store is closed."""
        return self._db

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
            while len(values) < len(wanted):
                found = get(wanted[len(values) : len(values) + self._read_keys])
                values.extend(found)
                self._after_read(len(found), sum(len(value) for value in found if value is not None))
        return values

    def _after_read(self, keys: int, size_bytes: int) -> None:
        """Take in what a multi-get returned: the next one asks for as many values of that size as it should."""
        self._read_keys = min(_READ_KEYS, max(1, _READ_BYTES * keys // max(1, size_bytes)))
        self._read_bytes += size_bytes
        if self._read_bytes >= _READ_BYTES and self.memory.write_buffer_limit is not None:
            self._read_bytes = 0
            self.memory.write_buffer_limit.used()

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        with self._translated():
            database = self._open()
            place = database.iter(bounds)
            place.seek(first)
            for _ in range(_SCAN_FIRST):
                if not place.valid():
                    break
                yield place.key(), place.value()
                place.next()
            # rocksdict reads faster by `items`, which ends at a damaged block as it does at the last entry. Only `status` tells them apart.
            while place.valid():
                last = first
                entries: Iterator[Any] = database.items(from_key=place.key(), read_opt=bounds)
                for entry in entries:
                    yield entry
                    last = entry[0]
                place = database.iter(bounds)
                place.seek(last + b"\0")
            place.status()

    def scan_unchecked(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """As `scan`, for a seventh less; but it ends at a damaged block as it does at the last entry. Call `check_end` then."""
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        with self._translated():
            entries: Iterator[Any] = self._open().items(from_key=first, read_opt=bounds)
        return entries

    def check_end(self, last: bytes, end: bytes) -> bool:
        """Return True if there is no entry after ``last`` and before ``end``; CorruptDataError if nobody knows, because of a damaged block."""
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        with self._translated():
            place = self._open().iter(bounds)
            place.seek(last + b"\0")
            if not place.valid():
                place.status()
                return True
        return False

    def write(self, changes: Iterable[Change]) -> None:
        database = self._open()
        # In the order of keys: in a buffer, an entry beside the one before it costs a third of one in any other place. Sorting is stable, so
        # the later of two changes of a key wins. What comes as an iterator is in that order already, or too large for a list.
        remaining = iter(sorted(changes, key=itemgetter(0)) if isinstance(changes, list) else changes)
        with self._translated():
            # A batch is used up by writing it.
            while len(batch := next_batch(remaining, self._write_bytes)):
                self._write(database, batch)

    def ingest(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        """Add entries in the order of their keys, in a range in which the store has none: as table files, which RocksDB takes in as they are.

        Written, they would be flushed to the first level, and merged from there to the last one.

        Raises:
            UnavailableError: The disk is full or fails. The store has none of the entries.
        """
        folder = self.path.with_name(f"{self.path.name}-ingested")  # on the same disk, so that the files are moved
        with self._translated():
            try:
                folder.mkdir()
                moving = IngestExternalFileOptions()
                moving.set_move_files(True)
                if files := write_table_files(self._native.family, folder, entries, self.options.settings.target_file_bytes):
                    self._open().ingest_external_file(files, moving)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        self._follow_files()

    def delete_in_order(self, keys: Sequence[bytes]) -> None:
        """Delete entries by their keys, which are in order; for less than `write` takes for the same deletes."""
        database = self._open()
        with self._translated():
            for start in range(0, len(keys), WRITE_ENTRIES):
                batch = WriteBatch(raw_mode=True)
                for key in keys[start : start + WRITE_ENTRIES]:
                    del batch[key]
                self._write(database, batch)

    def _write(self, database: Rdict, batch: WriteBatch) -> None:
        database.write(batch, self._write_options)
        if self.memory.write_buffer_limit is not None:
            self.memory.write_buffer_limit.wait()
        self._follow_files()

    def delete_range(self, first: bytes, end: bytes) -> None:
        with self._translated():
            self._open().delete_range(first, end, self._write_options)

    def flush(self) -> None:
        """Write all buffers to files; other threads run meanwhile."""
        with self._translated():
            self._open().flush(True)

    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        with self._closing, self._translated():
            database = self._open()
            directory.parent.mkdir(parents=True, exist_ok=True)
            # Flushed first without holding the interpreter lock, so that making the links has nothing left to write.
            database.flush(True)
            started = time.monotonic()
            Checkpoint(database).create_checkpoint(str(directory))
            held_up_ms = (time.monotonic() - started) * 1000
        for log in directory.glob("*.log"):
            # The write-ahead log is off: the file is empty and would only be uploaded.
            log.unlink()
        return StoreSnapshot(held_up_ms=held_up_ms)

    def size_bytes(self) -> int:
        with self._translated():
            database = self._open()
            # Read with every heartbeat: compactions continue while nothing is written.
            self._follow_files()
            return (database.property_int_value("rocksdb.estimate-live-data-size") or 0) + self._buffered_bytes()

    def _buffered_bytes(self) -> int:
        """Size of what is in memory only; 0 when the store is closed."""
        try:
            return 0 if self._db is None else self._db.property_int_value("rocksdb.cur-size-all-mem-tables") or 0
        except DbClosedError:
            return 0

    def property_int_value(self, name: str) -> int | None:
        """Return a property of the instance that is a number; None when it has none of that name."""
        with self._translated():
            return self._open().property_int_value(name)

    def statistics(self) -> str | None:
        """Return the counts of the instance since it was opened as RocksDB prints them; None without ``options.statistics``."""
        return self._native.database.get_statistics()

    def close(self) -> None:
        with self._closing, self._translated():
            database, self._db = self._db, None
            if database is not None:
                database.close()
            self.memory.set_pinned(str(self.path), 0)

    def destroy(self) -> None:
        """Close and delete all files."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def _open(self) -> Rdict:
        if self._db is None:
            raise self._closed()
        return self._db

    def _closed(self) -> StatefulSparkError:
        """Say why the store is closed: a slot closes one that is damaged while calls are still under way, and damage is what they report."""
        return self.damage or ClosedError(f"the state store {self.path} is closed")

    def _opened(self) -> MetadataPinning:
        """Open the instance, with all index and filter blocks pinned if they fit the high-priority pool.

        How large they are is known only when the files are open, so files are opened without pins first unless they are small.
        """
        capacity_bytes = self.memory.pinnable_bytes(str(self.path))
        if sum(file.stat().st_size for file in self.path.glob("*.sst")) <= capacity_bytes:
            self._open_native(pinned=capacity_bytes > 0)
            return MetadataPinning(pinning=capacity_bytes > 0)
        self._open_native(pinned=False)
        if self._metadata().size_bytes > capacity_bytes:
            return MetadataPinning(pinning=False)
        self._open().close()
        self._open_native(pinned=True)
        return MetadataPinning(pinning=True)

    def _open_native(self, *, pinned: bool) -> None:
        wanted = native_sections(self.options.settings, pinned=pinned, compacting=not self._compaction_pause.active)
        with self._translated():
            native = load_native(wanted, self.memory, self.options.settings, statistics=self.options.statistics)
            # Without column_families= rocksdict uses the options stored with the files and ignores ours.
            self._db = Rdict(str(self.path), options=native.database, column_families={COLUMN_FAMILY: native.family})
            # Kept: the statistics hang on it.
            self._native = native
            self._check_effective(wanted)

    def _check_effective(self, wanted: Sections) -> None:
        problems = list(differences(wanted, effective_sections(self.path)))
        capacity = self._open().property_int_value("rocksdb.block-cache-capacity")
        if capacity != self.memory.cache_bytes:
            problems.append(f"the block cache has {capacity} bytes instead of {self.memory.cache_bytes}")
        if problems:
            self.close()
            raise InternalError(f"RocksDB did not apply the requested options to {self.path}: {'; '.join(problems)}")

    def _follow_files(self) -> None:
        """Let new table files pin their index and filter blocks while the high-priority pool has space, and RocksDB merge files when it may."""
        if not self._following.acquire(blocking=False):
            return  # another thread is at it
        try:
            database = self._open()
            if self._compaction_pause.ends(lambda: database.property_int_value("rocksdb.num-files-at-level0") or 0):
                database.set_options({"disable_auto_compactions": "false"})
            # A live change of the memory split leaves more or less space for the same files.
            seen = database.property_int_value("rocksdb.current-super-version-number"), self.memory.high_prio_bytes
            if seen == self._seen:
                return
            self._seen = seen
            store = str(self.path)
            files = (TableFile(file["name"], file["size"], file["num_entries"]) for file in database.live_files())
            changed = self._pins.update(files, self._metadata(), self.memory.pinnable_bytes(store))
            self.memory.set_pinned(store, self._pins.pinned_bytes)
            if changed:
                database.set_options({"block_based_table_factory": f"{{metadata_cache_options={pinning(self._pins.pinning)}}}"})
        finally:
            self._following.release()

    def _metadata(self) -> Metadata:
        """Sizes of the index and filter blocks of all table files."""
        text = self._open().property_value("rocksdb.aggregated-table-properties") or ""
        return Metadata(_property(_INDEX, text), _property(_FILTER, text))

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
            return self._closed()
        if isinstance(error, OSError):
            return disk_failure(error.filename or self.path, error.strerror or str(error))
        if type(error) is not Exception:
            return error
        text = str(error)
        if "lock hold by current process" in text or "While lock file" in text:
            return ConflictError(f"the state store {self.path} is already open")
        if text.startswith("Corruption") or ("No such file" in text and ".sst" in text) or "does not exist (create_if_missing" in text:
            damage = CorruptDataError("the state store is damaged", path=str(self.path), found=_first_line(text))
            self.damage = self.damage or damage
            return damage
        if "No space left" in text or text.startswith("IO error: NoSpace"):
            if self.damage is None and self._full_disk.stuck(self._buffered_bytes()):
                message = "the state store takes no writes since its disk was full, although there is room again"
                self.damage = CorruptDataError(message, path=str(self.path))
            return self.damage or disk_failure(self.path, "No space left on device")
        if text.startswith("IO error"):
            return disk_failure(self.path, _first_line(text))
        return InternalError(f"RocksDB rejected the request: {_first_line(text)}")


def _property(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    if found is None:
        raise InternalError(f"RocksDB's table properties do not contain {pattern.pattern}")
    return int(found[1])


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0][:200]
