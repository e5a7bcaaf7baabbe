"""State backends of one's own: the contract holds for SQLite and the built-in stores, and catches stores that break it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from statefulspark import Configuration, SlotResources, StateBackend, StoreSnapshot
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.store.open_store import open_store
from statefulspark.state.store.own_backend import created_backend, imported_backend, opened_own_store
from statefulspark.testing import StateBackendContract

from . import sqlite_backend
from .sqlite_backend import FILE, SQLiteBackend, SQLiteStore

NAME = f"{sqlite_backend.__name__}:SQLiteBackend"


class BuiltIn(StateBackend):
    """A store that is built in, as a class."""

    kind = "memory"
    store: Callable[[Path], KeyValueStore] | None = None

    @classmethod
    def create_from_config(cls, configuration: Configuration) -> Self:
        return cls()

    def open_store(self, path: Path, resources: SlotResources) -> KeyValueStore:
        return open_store(self.kind, path)


class RocksDB(BuiltIn):
    kind = "rocksdb"


class TestSQLite(StateBackendContract):
    def backend(self) -> StateBackend:
        return SQLiteBackend.create_from_config(Configuration())


class TestMemory(StateBackendContract):
    def backend(self) -> StateBackend:
        return BuiltIn()


class TestRocksDB(StateBackendContract):
    def backend(self) -> StateBackend:
        return RocksDB()


class Unordered(HeapStore):
    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        yield from sorted(super().scan(first, end), key=lambda entry: entry[0][::-1])


class Inclusive(HeapStore):
    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return super().scan(first, end + b"\0")


class Lossy(HeapStore):
    """Its snapshot forgets empty values."""

    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        copy = HeapStore()
        copy.write([entry for entry in self.scan(b"", b"\xff" * 9) if entry[1]])
        return copy.begin_snapshot(directory)


class Foldered(HeapStore):
    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        (directory / "more").mkdir(parents=True)
        return super().begin_snapshot(directory)


class Linked(SQLiteStore):
    """Its snapshot is the open file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 1024)
        self._folder = folder

    def begin_snapshot(self, directory: Path) -> StoreSnapshot:
        directory.mkdir()
        (directory / FILE).hardlink_to(self._folder / FILE)
        return StoreSnapshot()


class Uncopied(HeapStore):
    """Writes into the dicts that a snapshot is written from."""

    def write(self, changes: Iterable[Change]) -> None:
        for group in self._groups.values():
            group.frozen = False
        super().write(changes)


class WronglyCopied(HeapStore):
    """Copies another key group than the one that is written."""

    def write(self, changes: Iterable[Change]) -> None:
        for change in changes:
            groups = sorted(self._groups)
            group = self._groups.get(change[0][:2])
            if group is not None and group.frozen:
                self._groups[groups[groups.index(change[0][:2]) - 1]].copy_for_writing()
                group.frozen = False
            super().write([change])


class EarlyReleased(HeapStore):
    """Forgets that another snapshot is still being written when one ends."""

    def _release(self, frozen: Any) -> None:
        super()._release(frozen)
        for group in self._groups.values():
            group.frozen = False


@pytest.mark.parametrize("broken", [Unordered, Inclusive, Lossy, Foldered, Linked, Uncopied, WronglyCopied, EarlyReleased])
def test_the_contract_catches_what_breaks_it(broken: Callable[[Path], KeyValueStore], tmp_path: Path) -> None:
    """At least one test fails for each."""

    class Backend(BuiltIn):
        def open_store(self, path: Path, resources: SlotResources) -> KeyValueStore:
            return broken(path)

    class Suite(StateBackendContract):
        def backend(self) -> StateBackend:
            return Backend()

    suite, failed = Suite(), list[str]()
    checks: list[Callable[[Path], Any]] = [
        lambda folder: suite.test_random_changes_and_snapshots_match_a_dict(folder, 0),
        *(partial(suite.test_a_snapshot_is_written_while_the_store_goes_on, seed=seed) for seed in range(3)),
        lambda folder: suite.test_a_snapshot_has_files_only(suite.open_store(folder / "store"), folder),
        lambda folder: suite.test_a_snapshot_outlives_the_store(suite.open_store(folder / "store"), folder),
    ]
    for number, check in enumerate(checks):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            check(folder)
        except Exception as error:
            failed.append(type(error).__name__)
        except AssertionError:
            failed.append("AssertionError")
    assert failed


def test_a_class_is_found_by_its_name_for_reading(tmp_path: Path) -> None:
    """As verify and state do, without settings."""
    assert imported_backend(NAME) is SQLiteBackend
    store = open_store(NAME, tmp_path / "store")
    assert isinstance(store, SQLiteStore)
    store.close()


def test_damage_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(CorruptDataError, match="not an SQLite file"):
        open_store(NAME, tmp_path)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere_at_all.backend:Mine", r"cannot import 'nowhere_at_all'. Put it beside the script, install it, or add it to pyFiles"),
        ("json:JSONDecoder", "JSONDecoder is not a StateBackend. Derive it from statefulspark.StateBackend"),
        ("json:dumps", "json has no class 'dumps'. Define `class dumps"),
        ("json:Missing", "json has no class 'Missing'"),
    ],
)
def test_wrong_names_are_refused(name: str, sentence: str) -> None:
    """Wherever they come from: a manifest, a test or a checkpoint."""
    with pytest.raises(InvalidInputError, match=f"^spec.stateBackend.type: {sentence}"):
        open_store(name, Path("/nowhere"))


class Absent(BuiltIn):
    @classmethod
    def create_from_config(cls, configuration: Configuration) -> Self:
        return None  # type: ignore[return-value]  # what is tested


class Raising(BuiltIn):
    @classmethod
    def create_from_config(cls, configuration: Configuration) -> Self:
        raise RuntimeError("no disk")


class Dictionary(BuiltIn):
    def open_store(self, path: Path, resources: SlotResources) -> Any:
        return {}


class Unfinished(StateBackend):
    @classmethod
    def create_from_config(cls, configuration: Configuration) -> Self:
        return cls()


def test_what_a_class_does_wrong_is_said_by_name() -> None:
    """With the field; a setting of its own is named as the setting."""
    for cls, sentence in (
        (Absent, "create_from_config of Absent returned a NoneType. Return cls"),
        (Raising, "create_from_config of Raising raised RuntimeError: no disk"),
        (Unfinished, "create_from_config of Unfinished raised TypeError"),
    ):
        with pytest.raises(InvalidInputError, match=f"^spec.stateBackend.type: {sentence}"):
            created_backend(cls, Configuration())
    with pytest.raises(
        InvalidInputError, match=r"open_store of Dictionary returned a dict without the methods get_many, scan, write, .*Return a"
    ):
        opened_own_store(Dictionary(), Path("/nowhere"), SlotResources())
    with pytest.raises(InvalidInputError, match=r"^spec.stateBackend.options.sqlite.cache-kib: is not a whole number"):
        created_backend(SQLiteBackend, Configuration({"sqlite.cache-kib": "2mb"}))
