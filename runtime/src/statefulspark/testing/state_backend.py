"""The contract of state backends of one's own. Derive a test class, provide ``backend``, and pytest runs it on your backend."""

# ruff: noqa: S101  # asserting is what a test suite is for

from __future__ import annotations

import threading
from abc import abstractmethod
from pathlib import Path
from random import Random

import pytest

from statefulspark.state.api.state_backends import SlotResources, StateBackend
from statefulspark.state.store.base import KeyValueStore, StoreSnapshot
from statefulspark.state.store.own_backend import opened_own_store
from statefulspark.testing.key_value_store import KeyValueStoreContract

_END = b"\xff" * 8
_ROUNDS = 60


class StateBackendContract(KeyValueStoreContract):
    """Tests that hold for any state backend, on the local disk and without Spark, in seconds.

    Example:
        ::

            class TestMyBackend(StateBackendContract):
                def backend(self) -> StateBackend:
                    return MyBackend.create_from_config(Configuration())
    """

    @abstractmethod
    def backend(self) -> StateBackend:
        """Return the backend under test, made without settings."""

    def open_store(self, path: Path) -> KeyValueStore:
        """Open a store with a backend of its own, as another process would."""
        return opened_own_store(self.backend(), path, SlotResources(managed_bytes=64 << 20))

    @pytest.mark.parametrize("seed", range(3))
    def test_random_changes_and_snapshots_match_a_dict(self, tmp_path: Path, seed: int) -> None:
        """Whatever is written, deleted and restored in whatever order, reads and scans are those of a sorted dict."""
        random, store, model = Random(seed), self.open_store(tmp_path / "store"), dict[bytes, bytes]()
        for step in range(_ROUNDS):
            changes = [
                (_key(random), random.choice([None, b"", random.randbytes(random.randrange(40))])) for _ in range(random.randrange(20))
            ]
            store.write(iter(changes))
            for key, value in changes:
                model.pop(key, None)
                if value is not None:
                    model[key] = value
            first, end = sorted([_key(random), _key(random)])
            if random.random() < 0.2:
                store.delete_range(first, end)
                model = {key: value for key, value in model.items() if not first <= key < end}
            if random.random() < 0.2:
                store.begin_snapshot(tmp_path / f"snapshot-{step}").write()
                store.write([(b"after the snapshot", b"1")])
                store.close()
                store = self.open_store(tmp_path / f"snapshot-{step}")
            asked = [_key(random) for _ in range(10)]
            assert store.get_many(asked) == [model.get(key) for key in asked]
            assert list(store.scan(first, end)) == sorted((key, value) for key, value in model.items() if first <= key < end)
        assert list(store.scan(b"", _END)) == sorted(model.items())
        store.close()

    @pytest.mark.parametrize("seed", range(3))
    def test_a_snapshot_is_written_while_the_store_goes_on(self, tmp_path: Path, seed: int) -> None:
        """Batches are written between `begin_snapshot` and its ``write``, and the next snapshot may begin: each has what was there at its beginning."""
        random, store, model = Random(seed), self.open_store(tmp_path / "store"), dict[bytes, bytes]()
        begun = list[tuple[Path, StoreSnapshot, dict[bytes, bytes]]]()
        for step in range(_ROUNDS):
            changes = [(_key(random), random.choice([None, random.randbytes(3)])) for _ in range(random.randrange(12))]
            store.write(changes)
            for key, value in changes:
                model.pop(key, None)
                if value is not None:
                    model[key] = value
            if random.random() < 0.1:
                first, end = sorted([_key(random), _key(random)])
                store.delete_range(first, end)
                model = {key: value for key, value in model.items() if not first <= key < end}
            if random.random() < 0.3:
                folder = tmp_path / f"snapshot-{step}"
                begun.append((folder, store.begin_snapshot(folder), dict(model)))
            if begun and random.random() < 0.3:
                self._check_written(*begun.pop(random.randrange(len(begun))))
        assert list(store.scan(b"", _END)) == sorted(model.items())
        store.close()
        for each in begun:
            self._check_written(*each)

    def _check_written(self, folder: Path, snapshot: StoreSnapshot, expected: dict[bytes, bytes]) -> None:
        snapshot.write()
        copy = self.open_store(folder)
        assert list(copy.scan(b"", _END)) == sorted(expected.items())
        copy.close()

    def test_a_snapshot_is_written_beside_a_writer(self, store: KeyValueStore, tmp_path: Path) -> None:
        """In another thread, at the same time: it has no change made after its beginning."""
        store.write([(number.to_bytes(4, "big"), b"before") for number in range(6000)])
        snapshot = store.begin_snapshot(tmp_path / "snapshot")
        writing = threading.Thread(target=snapshot.write)
        writing.start()
        for start in range(0, 6000, 200):
            store.write([(number.to_bytes(4, "big"), None if number % 3 else b"after") for number in range(start, start + 200)])
        writing.join()
        copy = self.open_store(tmp_path / "snapshot")
        assert [value for _, value in copy.scan(b"", _END)] == [b"before"] * 6000
        copy.close()
        assert sum(1 for _ in store.scan(b"", _END)) == 2000

    def test_a_snapshot_has_files_only(self, store: KeyValueStore, tmp_path: Path) -> None:
        """Its folder is uploaded file by file: no folders, and names of at most 255 characters."""
        store.write([(b"a", b"1")])
        store.begin_snapshot(tmp_path / "snapshot").write()
        found = list((tmp_path / "snapshot").iterdir())
        assert found, "an entry was written, so there is a file"
        assert all(each.is_file() and not each.is_symlink() and len(each.name) <= 255 for each in found)

    def test_a_snapshot_outlives_the_store(self, store: KeyValueStore, tmp_path: Path) -> None:
        """It is uploaded while the store is written, and moved to another machine: it is whole without the store's folder."""
        store.write([(bytes([number]), b"v" * number) for number in range(200)])
        store.begin_snapshot(tmp_path / "snapshot").write()
        frozen = {each.name: each.read_bytes() for each in (tmp_path / "snapshot").iterdir()}
        store.write([(bytes([number]), b"changed") for number in range(200)])
        store.close()
        assert {each.name: each.read_bytes() for each in (tmp_path / "snapshot").iterdir()} == frozen
        moved = tmp_path / "elsewhere"
        moved.mkdir()
        for name, data in frozen.items():
            (moved / name).write_bytes(data)
        copy = self.open_store(moved)
        assert [len(value) for _, value in copy.scan(b"", _END)] == list(range(200))
        copy.close()

    def test_a_second_snapshot_is_whole(self, store: KeyValueStore, tmp_path: Path) -> None:
        """Each checkpoint is restored by itself."""
        store.write([(b"a", b"1"), (b"b", b"1")])
        store.begin_snapshot(tmp_path / "first").write()
        store.write([(b"b", b"2"), (b"c", b"2")])
        store.begin_snapshot(tmp_path / "second").write()
        for name, expected in (("second", [(b"a", b"1"), (b"b", b"2"), (b"c", b"2")]), ("first", [(b"a", b"1"), (b"b", b"1")])):
            copy = self.open_store(tmp_path / name)
            assert list(copy.scan(b"", _END)) == expected
            copy.close()

    def test_several_stores_are_open_at_once(self, tmp_path: Path) -> None:
        """A rescaled slot copies from other slots' stores; one backend opens them all."""
        backend, resources = self.backend(), SlotResources()
        stores = [opened_own_store(backend, tmp_path / f"slot-{number}", resources) for number in range(3)]
        for number, store in enumerate(stores):
            store.write([(b"key", bytes([number]))])
        stores[2].write(stores[0].scan(b"", _END))
        assert [store.get(b"key") for store in stores] == [b"\0", b"\x01", b"\0"]
        for store in stores:
            store.close()

    def test_large_values_and_keys(self, store: KeyValueStore, tmp_path: Path) -> None:
        """A value of 20 MB and a key of 60 KB come back, from a snapshot too."""
        large = Random(1).randbytes(20 << 20)
        store.write([(b"k" * 60_000, b"long key"), (b"large", large)])
        store.begin_snapshot(tmp_path / "snapshot").write()
        copy = self.open_store(tmp_path / "snapshot")
        assert copy.get(b"large") == large
        assert copy.get(b"k" * 60_000) == b"long key"
        copy.close()

    def test_other_threads_read_and_take_snapshots(self, store: KeyValueStore, tmp_path: Path) -> None:
        """Batches come from different threads, one at a time; heartbeats count entries and size meanwhile; a snapshot has its own thread."""
        store.write([(number.to_bytes(4, "big"), b"0") for number in range(500)])
        done, problems = threading.Event(), list[BaseException]()

        def read() -> None:
            try:
                while not done.is_set():
                    assert len(list(store.scan(b"", _END))) >= 500
                    store.size_bytes()
                    store.get(b"\0\0\0\1")
            except BaseException as error:  # noqa: BLE001  shown by the test
                problems.append(error)

        def write(start: int) -> None:
            try:
                for number in range(start, start + 300):
                    store.write([(number.to_bytes(4, "big"), b"1")])
            except BaseException as error:  # noqa: BLE001  shown by the test
                problems.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        for start in (500, 800):
            writer = threading.Thread(target=write, args=(start,))
            writer.start()
            writer.join()
        snapshots = threading.Thread(target=lambda: store.begin_snapshot(tmp_path / "snapshot").write())
        snapshots.start()
        snapshots.join()
        done.set()
        reader.join()
        assert [repr(each) for each in problems] == []
        copy = self.open_store(tmp_path / "snapshot")
        assert len(list(copy.scan(b"", _END))) == 1100
        copy.close()


def _key(random: Random) -> bytes:
    return bytes(random.choice(b"\x00\x01ab\xff") for _ in range(random.randrange(4)))
