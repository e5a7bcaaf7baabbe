"""The slot process of the memory soak: the runtime's own slot, started as an executor starts it, that also writes down what it knows itself.

    python -m soak.slot CONFIG SLOT LOG [--without-store] [--snapshot-s SECONDS]

``--without-store``: everything is the same but the store, which keeps nothing and answers with what was written last: its memory is that of
Python alone, the baseline. ``--snapshot-s``: snapshots keep the store for at least so long, as they do on a machine that starves the slot.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pickle
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark.worker  # noqa: F401  an executor's Python worker has it loaded

from statefulspark.exchange.config import SlotConfig
from statefulspark.slot.allocator import resident_bytes
from statefulspark.slot.process import run_slot
from statefulspark.state.encoding.values import LIST_HEAD, LIST_SEGMENT
from statefulspark.state.store import open_store as stores
from statefulspark.state.store.base import Change, StoreSnapshot
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore

_LOG_S = 2.0
_LOOK_S = 0.05
_SCANNED = 40
_OF_LONG_LISTS = (bytes([LIST_HEAD]), bytes([LIST_SEGMENT]))


class NoStore:
    """Forgets what is written; reads give the last value written to the same state, at the same sizes and cost for Python.

    The entries of a long list belong together, so states that have one are kept, on disk.
    """

    def __init__(self, path: Path, options: RocksDBOptions | None = None) -> None:
        self.path = path
        self.options = options or RocksDBOptions()
        self._newest: dict[bytes, bytes] = {}
        self._list_states: set[bytes] = set()
        # What a batch has spilled begins with a byte of its own, before the version of the value.
        self._version_at = int(path.name.startswith("spill"))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lists = sqlite3.connect(f"{path}.lists", check_same_thread=False, isolation_level=None)
        self._lists.executescript("pragma journal_mode = off; pragma synchronous = off; pragma cache_size = -256")
        self._lists.execute("create table entries (key blob primary key, value blob) without rowid")
        self._lock = threading.Lock()

    def get(self, key: bytes) -> bytes | None:
        if key[2:4] in self._list_states:
            with self._lock:
                found = self._lists.execute("select value from entries where key = ?", (key,)).fetchone()
            return None if found is None else bytes(found[0])
        value = self._newest.get(key[2:4])
        return None if value is None else bytes(bytearray(value))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        if first[2:4] in self._list_states:
            with self._lock:
                yield from self._lists.execute(
                    "select key, value from entries where key >= ? and key < ? order by key", (first, end)
                ).fetchall()
            return
        value = self.get(first)
        if value is not None and len(first) > 8 and end > first:
            yield from ((first + bytes(3) + bytes([number]), bytes(bytearray(value))) for number in range(_SCANNED))

    def write(self, changes: Iterable[Change]) -> None:
        for key, value in changes:
            if value is not None and value[self._version_at : self._version_at + 1] in _OF_LONG_LISTS:
                self._list_states.add(key[2:4])
            if key[2:4] in self._list_states:
                with self._lock:
                    if value is None:
                        self._lists.execute("delete from entries where key = ?", (key,))
                    else:
                        self._lists.execute("insert or replace into entries values (?, ?)", (key, value))
            elif value is not None:
                self._newest[key[2:4]] = value

    def delete_range(self, first: bytes, end: bytes) -> None:
        """Nothing is kept."""

    def flush(self) -> None:
        """Nothing is kept."""

    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        raise NotImplementedError("the baseline takes no snapshots")

    def size_bytes(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""

    def destroy(self) -> None:
        """Nothing is there."""


def _load_native_code(path: Path) -> None:
    """Make the pages of RocksDB's code resident: they belong to the process, not to its data."""
    store = RocksDBStore(path, RocksDBOptions(memory=RocksDBMemory.managed(16 << 20)))
    for number in range(8):
        store.write([(f"{number}{each:05d}".encode(), bytes(1000)) for each in range(2000)])
    store.flush()
    list(store.scan(b"0", b"9"))
    store.destroy()


class _MallInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def _write_log(path: Path, opened: list[Any]) -> None:
    """One line every two seconds, and one at each new peak, so that the peak can be told apart into its parts."""
    # Keeps the interpreter lock during the call, so that the figures of a line belong together.
    libc = ctypes.PyDLL(None)
    libc.mallinfo2.restype = _MallInfo
    peak = written_s = 0.0
    with path.open("w") as log:
        while True:
            time.sleep(_LOOK_S)
            resident = resident_bytes()
            if resident <= peak and time.monotonic() - written_s < _LOG_S:
                continue
            peak, written_s = max(peak, resident), time.monotonic()
            heap = libc.mallinfo2()
            entry: dict[str, Any] = {
                "at": time.time(),
                "rss": resident,
                "used": heap.uordblks,
                "free": heap.fordblks,
                "mapped": heap.hblkhd,
                "arrow": pa.total_allocated_bytes(),
            }
            for store in opened:
                if isinstance(store, RocksDBStore):
                    entry |= _native(store)
            log.write(json.dumps(entry) + "\n")
            log.flush()


def _native(store: RocksDBStore) -> dict[str, Any]:
    memory, database = store.memory, store.native()
    if database is None:
        return {}
    return {
        "cache": memory.cache.get_usage(),
        "pinned": memory.cache.get_pinned_usage(),
        "buffers": memory.write_buffers.get_usage() if memory.write_buffers else 0,
        "readers": database.property_int_value("rocksdb.estimate-table-readers-mem"),
        "files": database.property_int_value("rocksdb.num-live-versions"),
        "sst": database.property_int_value("rocksdb.total-sst-files-size"),
        "snapshot_s": getattr(store, "snapshot_s", None),
        "live": database.property_int_value("rocksdb.estimate-live-data-size"),
        "l0": int(database.property_value("rocksdb.num-files-at-level0") or 0),
        "compactions": database.property_int_value("rocksdb.num-running-compactions"),
    }


def main() -> None:
    """Run the slot to its end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("slot", type=int)
    parser.add_argument("log", type=Path)
    parser.add_argument("--without-store", action="store_true")
    parser.add_argument("--snapshot-s", type=float, default=0.0)
    arguments = parser.parse_args()
    config: SlotConfig = pickle.loads(arguments.config.read_bytes())  # noqa: S301  written by the soak itself
    opened: list[Any] = []
    # The one seam at which the baseline differs: store and spills.
    seam: Any = stores
    kind: Any = seam.RocksDBStore
    if arguments.without_store:
        _load_native_code(Path(config.local_dir or "") / f"code-{arguments.slot}")
        kind = NoStore

    class Opened(kind):  # type: ignore[misc]  # chosen above
        """The store, remembered for the log."""

        def __init__(self, path: Path, options: RocksDBOptions | None = None) -> None:
            super().__init__(path, options)
            if not opened:
                opened.append(self)

        def begin_snapshot(self, directory: Path) -> StoreSnapshot:
            started = time.monotonic()
            time.sleep(arguments.snapshot_s)
            snapshot: StoreSnapshot = super().begin_snapshot(directory)
            self.snapshot_s = time.monotonic() - started
            return snapshot

    seam.RocksDBStore = Opened
    threading.Thread(target=_write_log, args=(arguments.log, opened), daemon=True).start()
    run_slot(config, arguments.slot, f"soak/{arguments.slot}")


if __name__ == "__main__":
    main()
