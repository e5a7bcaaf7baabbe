"""A state backend on SQLite, as a user would write one."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from statefulspark import Configuration, SlotResources, StateBackend, StoreSnapshot
from statefulspark.errors import ClosedError, CorruptDataError

FILE = "entries.sst"
"""A name that RocksDB's immutable files have; this one changes."""


class SQLiteStore:
    """One table; SQLite compares blobs as unsigned bytes."""

    def __init__(self, folder: Path, cache_kib: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._open: sqlite3.Connection | None = sqlite3.connect(folder / FILE, check_same_thread=False, isolation_level=None)
        try:
            self._db.execute(f"pragma cache_size = -{cache_kib}")
            self._db.execute("create table if not exists entries (key blob primary key, value blob not null) without rowid")
        except sqlite3.DatabaseError as error:
            raise CorruptDataError("not an SQLite file", path=str(folder / FILE)) from error

    @property
    def _db(self) -> sqlite3.Connection:
        if self._open is None:
            raise ClosedError("the store is closed")
        return self._open

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            found = self._db.execute("select value from entries where key = ?", (key,)).fetchone()
        return None if found is None else found[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        after, reached = first, ">="
        while True:
            with self._lock:
                query = f"select key, value from entries where key {reached} ? and key < ? order by key limit 500"
                page = self._db.execute(query, (after, end)).fetchall()
            yield from page
            if len(page) < 500:
                return
            after, reached = page[-1][0], ">"

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        # The changes may come from a scan of this store, so they are read before the transaction.
        everything = list(changes)
        with self._lock:
            self._db.execute("begin")
            for key, value in everything:
                if value is None:
                    self._db.execute("delete from entries where key = ?", (key,))
                else:
                    self._db.execute("insert or replace into entries values (?, ?)", (key, value))
            self._db.execute("commit")

    def delete_range(self, first: bytes, end: bytes) -> None:
        with self._lock:
            self._db.execute("delete from entries where key >= ? and key < ?", (first, end))

    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        directory.mkdir(parents=True)
        with self._lock:
            self._db.execute("vacuum into ?", (os.fspath(directory / FILE),))
        return StoreSnapshot()

    def size_bytes(self) -> int:
        with self._lock:
            return int(self._db.execute("pragma page_count").fetchone()[0]) * 4096

    def close(self) -> None:
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._open = None


class SQLiteBackend(StateBackend):
    """Reads its own setting."""

    def __init__(self, cache_kib: int) -> None:
        self._cache_kib = cache_kib

    @classmethod
    def create_from_config(cls, configuration: Configuration) -> Self:
        return cls(configuration.get_integer("sqlite.cache-kib", 2048))

    def open_store(self, path: Path, resources: SlotResources) -> SQLiteStore:
        return SQLiteStore(path, self._cache_kib)
