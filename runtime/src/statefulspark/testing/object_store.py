"""The contract of ObjectStore as pytest tests: inherit ``ObjectStoreContract`` to prove a store of your own.

Example:
    ```python
    class TestMyStore(ObjectStoreContract):
        @pytest.fixture
        def store(self) -> MyStore:
            return MyStore("bucket", prefix=uuid.uuid4().hex)  # empty for each test
    ```
"""

# These are tests though they are shipped: they assert, and unpickle what they pickled.
# ruff: noqa: S101, S301

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from statefulspark.errors import ClosedError, ConflictError, InvalidInputError
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.hashes import HashAlgorithm

_WRITERS = 8


class ObjectStoreContract:
    """Every promise that the runtime builds on. Subclasses give a fixture ``store``: an empty store."""

    large_bytes: int = 12 << 20
    """Size of the file in the large-file test; enough to make the store use parts."""

    def test_put_then_get(self, store: ObjectStore) -> None:
        """Written content is read back, empty and binary content too, and can be replaced by shorter content."""
        for data in (bytes(range(256)) * 10, b"", b"short"):
            store.put("a/b", data)
            assert store.get("a/b") == data

    def test_absent(self, store: ObjectStore) -> None:
        """An absent object is a KeyError to readers, None to head, and nothing to delete."""
        for read in (store.get, lambda key: store.get_file(key, Path("never-made")), lambda key: store.copy(key, "target")):
            with pytest.raises(KeyError, match="nobody/home"):
                read("nobody/home")
        assert store.head("nobody/home") is None
        store.delete(["nobody/home"])
        assert store.list("") == []
        assert not Path("never-made").exists()

    def test_a_folder_is_no_object(self, store: ObjectStore) -> None:
        """The path that leads to an object, and a path below it, are absent as objects."""
        store.put("a/b", b"x")
        for key in ("a", "a/b/c"):
            assert store.head(key) is None
            with pytest.raises(KeyError):
                store.get(key)
            store.delete([key])
        assert store.get("a/b") == b"x"

    def test_put_if_absent_creates_once(self, store: ObjectStore) -> None:
        """Other bytes conflict and change nothing; the same bytes count as this writer's own lost success."""
        store.put_if_absent("claim", b"mine")
        store.put_if_absent("claim", b"mine")
        with pytest.raises(ConflictError, match="claim"):
            store.put_if_absent("claim", b"yours")
        assert store.get("claim") == b"mine"

    def test_put_if_absent_after_delete(self, store: ObjectStore) -> None:
        """A deleted object can be created again, empty content too."""
        store.put_if_absent("claim", b"first")
        store.delete(["claim"])
        store.put_if_absent("claim", b"")
        with pytest.raises(ConflictError):
            store.put_if_absent("claim", b"first")

    def test_put_if_absent_has_one_winner(self, store: ObjectStore) -> None:
        """Of writers with different bytes at the same moment exactly one succeeds, and its bytes stay."""
        for attempt in range(5):
            key = f"attempts/{attempt:08d}"
            barrier = threading.Barrier(_WRITERS)
            won: list[bytes] = []

            def claim(data: bytes, key: str = key, barrier: threading.Barrier = barrier, won: list[bytes] = won) -> None:
                barrier.wait(10)
                try:
                    store.put_if_absent(key, data)
                except ConflictError:
                    return
                won.append(data)

            threads = [threading.Thread(target=claim, args=(f"writer {i}".encode(),), daemon=True) for i in range(_WRITERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert won == [store.get(key)]

    def test_files(self, store: ObjectStore, tmp_path: Path) -> None:
        """A file goes up and down unchanged, replaces what was there on both sides, and makes the folders it needs."""
        source, target = tmp_path / "source", tmp_path / "new" / "folder" / "target"
        for data in (b"", b"first", bytes(range(256)) * 64):
            source.write_bytes(data)
            store.put_file("f/ile", source)
            found = store.get_file("f/ile", target)  # which replaces what was there
            assert target.read_bytes() == data == store.get("f/ile")
            assert found in {None, HashAlgorithm.XXH128.of(data)}
            assert store.get_file("f/ile", target, HashAlgorithm.SHA256) in {None, HashAlgorithm.SHA256.of(data)}
        assert [path.name for path in target.parent.iterdir()] == ["target"]
        with pytest.raises(FileNotFoundError):
            store.put_file("f/ile", tmp_path / "nothing")

    def test_canceled_files(self, store: ObjectStore, tmp_path: Path) -> None:
        """An upload that is canceled leaves no object, and what was there stays; one that is not canceled is like any other."""
        source = tmp_path / "source"
        source.write_bytes(b"x" * self.large_bytes)
        cancellation = Cancellation("it was canceled")
        store.put("f/ile", b"before")
        store.put_file("f/other", source, cancellation)
        assert store.get("f/other") == source.read_bytes()
        cancellation.cancel()
        for key in ("f/ile", "f/new"):
            with pytest.raises(ClosedError, match="it was canceled"):
                store.put_file(key, source, cancellation)
        assert store.get("f/ile") == b"before"
        assert [info.key for info in store.list("")] == ["f/ile", "f/other"]

    def test_large_file(self, store: ObjectStore, tmp_path: Path) -> None:
        """A file large enough to be sent in parts arrives whole, and can be copied."""
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(b"".join(i.to_bytes(4, "big") for i in range(self.large_bytes // 4)))
        store.put_file("large", source)
        store.copy("large", "copy")
        store.get_file("copy", target)
        assert target.read_bytes() == source.read_bytes()
        info = store.head("copy")
        assert info is not None
        assert info.size_bytes == self.large_bytes

    def test_list(self, store: ObjectStore) -> None:
        """A prefix is a string, not a folder; keys are sorted by code points; sizes are told."""
        keys = ["a", "b/1", "b/10", "b/2", "b/sub/x", "b-1", "bc", "c/\u00e9", "c/z", "c/\U0001f600"]
        for key in keys:
            store.put(key, key.encode())
        for prefix in ("", "b", "b/", "b/1", "b/s", "b/sub/", "b/sub/x", "c/", "x", "a/"):
            found = store.list(prefix)
            assert [info.key for info in found] == sorted(key for key in keys if key.startswith(prefix))
            assert all(info.size_bytes == len(info.key.encode()) for info in found)
            assert all(info.modified_s > 1e9 for info in found)

    def test_list_folders(self, store: ObjectStore) -> None:
        """Only names that have objects under them, at one level."""
        for key in ("chk-1/_metadata", "chk-10/a/b", "chk-2/x", "file", "deep/er/file"):
            store.put(key, b"x")
        store.delete(["chk-2/x"])
        assert store.list_folders("") == ["chk-1", "chk-10", "deep"]
        assert store.list_folders("deep/") == ["er"]
        assert store.list_folders("deep/er/") == []
        assert store.list_folders("nowhere/") == []
        with pytest.raises(InvalidInputError, match="end with"):
            store.list_folders("deep")

    def test_delete_many(self, store: ObjectStore) -> None:
        """More keys than one request takes, some absent, given as an iterator; neighbours stay."""
        for i in range(0, 1100, 50):
            store.put(f"many/{i}", b"x")
        store.put("many/stays", b"x")
        store.delete(f"many/{i}" for i in range(1100))
        store.delete(iter(()))
        assert [info.key for info in store.list("")] == ["many/stays"]

    def test_copy(self, store: ObjectStore) -> None:
        """A copy replaces its target and lives on without its source; onto itself it changes nothing."""
        store.put("source", b"content")
        store.put("deep/target", b"old and longer")
        store.copy("source", "deep/target")
        store.delete(["source"])
        assert store.get("deep/target") == b"content"
        assert store.head("source") is None
        store.copy("deep/target", "deep/target")
        assert store.get("deep/target") == b"content"
        with pytest.raises(KeyError):
            store.copy("source", "source")

    @pytest.mark.parametrize(
        "key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", ".", "a\\b", "a\nb", "a\x00b", "\ud800", "x" * 256, "x/" * 600 + "x"]
    )
    def test_bad_keys(self, store: ObjectStore, key: str, tmp_path: Path) -> None:
        """Keys that some store could not hold, or that lead out of the store, are refused by all operations."""
        (tmp_path / "file").write_bytes(b"x")
        operations = (
            lambda: store.put(key, b""),
            lambda: store.put_if_absent(key, b""),
            lambda: store.put_file(key, tmp_path / "file"),
            lambda: store.get(key),
            lambda: store.get_file(key, tmp_path / "target"),
            lambda: store.head(key),
            lambda: store.copy(key, "a"),
            lambda: store.delete([key]),
        )
        for operation in operations:
            with pytest.raises(InvalidInputError):
                operation()
        store.put("good", b"")
        with pytest.raises(InvalidInputError):
            store.copy("good", key)
        assert [info.key for info in store.list("")] == ["good"]

    def test_pickle(self, store: ObjectStore) -> None:
        """A store travels to executors, used or not, and works there."""
        store.put("a", b"x")
        again = pickle.loads(pickle.dumps(store))
        assert again.url == store.url
        assert again.get("a") == b"x"

    def test_readers_see_whole_objects(self, store: ObjectStore) -> None:
        """While one thread replaces an object, others read one of its versions, never a mix or nothing."""
        versions = {bytes([i]) * 50_000 for i in range(20)}
        store.put("object", bytes([0]) * 50_000)
        done = threading.Event()
        bad: list[str] = []

        def read() -> None:
            while not done.is_set():
                data = store.get("object")
                if data not in versions:
                    bad.append(f"{len(data)} bytes, {len(set(data))} different")

        readers = [threading.Thread(target=read, daemon=True) for _ in range(2)]
        for reader in readers:
            reader.start()
        for version in sorted(versions):
            store.put("object", version)
        done.set()
        for reader in readers:
            reader.join(60)
        assert bad == []
