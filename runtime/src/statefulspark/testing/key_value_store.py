"""The contract of every KeyValueStore. Inherit, provide ``open_store``, and the tests run on your store."""

# ruff: noqa: S101  # asserting is what a test suite is for

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from statefulspark.errors import ClosedError
from statefulspark.state.store.base import KeyValueStore


class KeyValueStoreContract(ABC):
    """Tests that hold for any store."""

    @abstractmethod
    def open_store(self, path: Path) -> KeyValueStore:
        """Open the store in ``path``: empty when the directory is missing, else the snapshot or store that is there."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> KeyValueStore:
        """An empty store."""
        return self.open_store(tmp_path / "store")

    def test_reads_what_was_written(self, store: KeyValueStore) -> None:
        """Values come back byte for byte, empty ones too; absent keys are None."""
        store.write([(b"a", b"1"), (b"b", b""), (b"\x00\xff", b"\x00")])
        assert store.get(b"a") == b"1"
        assert store.get(b"b") == b""
        assert store.get(b"\x00\xff") == b"\x00"
        assert store.get(b"c") is None

    def test_later_changes_win(self, store: KeyValueStore) -> None:
        """Changes are applied in order, within one write and over several."""
        store.write([(b"a", b"1"), (b"a", None), (b"a", b"2"), (b"b", b"1"), (b"b", None)])
        assert store.get_many([b"a", b"b"]) == [b"2", None]
        store.write([(b"a", None), (b"b", b"3")])
        assert store.get_many([b"a", b"b"]) == [None, b"3"]

    def test_get_many_keeps_order_and_duplicates(self, store: KeyValueStore) -> None:
        """One value per asked key, in the asked order, however many keys."""
        store.write([(number.to_bytes(4, "big"), str(number).encode()) for number in range(0, 3000, 2)])
        keys = [number.to_bytes(4, "big") for number in [7, 4, 4, *range(2999, 0, -1)]]
        expected = [store.get(key) for key in keys]
        assert store.get_many(keys) == expected
        assert expected[:3] == [None, b"4", b"4"]
        assert store.get_many([]) == []

    def test_scan_is_a_half_open_range_in_byte_order(self, store: KeyValueStore) -> None:
        """A scan gives first <= key < end, ordered as unsigned bytes, shorter before longer."""
        keys = [b"", b"\x00", b"a", b"a\x00", b"a\xff", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
        store.write([(key, b"v" + key) for key in reversed(keys)])
        assert [key for key, _ in store.scan(b"", b"\xff\xff\xff")] == sorted(keys)
        assert list(store.scan(b"a", b"b")) == [(b"a", b"va"), (b"a\x00", b"va\x00"), (b"a\xff", b"va\xff")]
        assert list(store.scan(b"a\x01", b"a\x02")) == []
        assert list(store.scan(b"b", b"a")) == []

    def test_scan_sees_deletes_and_new_keys(self, store: KeyValueStore) -> None:
        """Scans between writes are never stale."""
        store.write([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
        assert len(list(store.scan(b"", b"z"))) == 3
        store.write([(b"b", None), (b"bb", b"2")])
        assert [key for key, _ in store.scan(b"", b"z")] == [b"a", b"bb", b"c"]
        store.write([(b"b", b"3")])
        assert [key for key, _ in store.scan(b"", b"z")] == [b"a", b"b", b"bb", b"c"]

    def test_abandoned_scan_does_no_harm(self, store: KeyValueStore) -> None:
        """A scan that is not read to its end does not keep the store from being written and closed."""
        store.write([(bytes([number]), b"1") for number in range(10)])
        scan = store.scan(b"", b"\xff")
        next(scan)
        del scan
        store.write([(b"\x05", None)])
        assert store.get(b"\x05") is None
        store.close()

    def test_delete_range(self, store: KeyValueStore) -> None:
        """Exactly the half-open range goes, and later writes into it stay."""
        store.write([(bytes([number]), b"1") for number in range(10)])
        store.delete_range(b"\x03", b"\x07")
        assert [key[0] for key, _ in store.scan(b"", b"\xff")] == [0, 1, 2, 7, 8, 9]
        store.write([(b"\x04", b"2")])
        assert store.get(b"\x04") == b"2"

    def test_snapshot_opens_with_the_same_entries(self, store: KeyValueStore, tmp_path: Path) -> None:
        """A snapshot is a store of its own: later writes reach neither one from the other."""
        store.write([(number.to_bytes(4, "big"), b"v" * (number % 50)) for number in range(5000)])
        store.write([(b"\x00\x00\x00\x05", None)])
        before = list(store.scan(b"", b"\xff"))
        store.begin_snapshot(tmp_path / "snapshot").write()
        store.write([(b"\x00\x00\x00\x06", None), (b"new", b"1")])
        copy = self.open_store(tmp_path / "snapshot")
        assert list(copy.scan(b"", b"\xff")) == before
        copy.write([(b"copy", b"1")])
        assert store.get(b"copy") is None
        copy.close()

    def test_snapshot_of_nothing(self, store: KeyValueStore, tmp_path: Path) -> None:
        """An empty store has a snapshot too."""
        store.begin_snapshot(tmp_path / "snapshot").write()
        copy = self.open_store(tmp_path / "snapshot")
        assert list(copy.scan(b"", b"\xff")) == []
        copy.close()

    def test_size_grows_with_data(self, store: KeyValueStore) -> None:
        """The size is an approximation, but not a constant."""
        empty = store.size_bytes()
        store.write([(number.to_bytes(4, "big"), b"v" * 100) for number in range(5000)])
        assert store.size_bytes() >= empty + 100_000

    def test_closed_store_refuses(self, store: KeyValueStore) -> None:
        """After close every access is a ClosedError; closing twice is fine."""
        store.close()
        store.close()
        with pytest.raises(ClosedError):
            store.get(b"a")
        with pytest.raises(ClosedError):
            store.write([(b"a", b"1")])
