"""DictStore: a KeyValueStore made of a dict, for tests of what moves stores around.

It is written apart from the product's memory store, so that a defect there cannot hide one here. Its snapshot has table files
(``*.sst``, one per flush, never changed) and a small manifest, like RocksDB's, so that increments can be observed.
"""

from __future__ import annotations

import json
import pickle
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from statefulspark.state.store.base import Change, StoreSnapshot


class DictStore:
    """Ordered map that keeps each flush as one immutable file in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[bytes, bytes] = {}
        self._changed: dict[bytes, bytes | None] = {}
        self._tables: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "MANIFEST").exists():
            self._tables = json.loads((folder / "MANIFEST").read_text())
            for table in self._tables:
                self._apply(pickle.loads((folder / table).read_bytes()).items())

    def get(self, key: bytes) -> bytes | None:
        return self.entries.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.entries.get(key) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys = sorted(self.entries)
        for key in keys[bisect_left(keys, first) : bisect_left(keys, end)]:
            yield key, self.entries[key]

    def write(self, changes: Iterable[Change]) -> None:
        for key, value in changes:
            self._changed[key] = value
            self._apply([(key, value)])

    def delete_range(self, first: bytes, end: bytes) -> None:
        self.write([(key, None) for key in list(self.entries) if first <= key < end])

    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        if self._changed:
            name = f"{len(self._tables):06d}.sst"
            (self.folder / name).write_bytes(pickle.dumps(self._changed))
            self._tables.append(name)
            self._changed = {}
        directory.mkdir()
        for table in self._tables:
            shutil.copy(self.folder / table, directory / table)
        (directory / "MANIFEST").write_text(json.dumps(self._tables))
        (directory / "000099.log").write_bytes(b"")
        return StoreSnapshot()

    def size_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self.entries.items())

    def close(self) -> None:
        pass

    def _apply(self, changes: Iterable[Change]) -> None:
        for key, value in changes:
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value
