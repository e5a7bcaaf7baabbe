"""A damaged block of a RocksDB file: a scan that meets it fails, and does not end as if there were no more entries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from statefulspark.errors import CorruptDataError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import store_key
from statefulspark.state.encoding.values import join_expiry
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.tables.expired_entries import swept_values
from statefulspark.state.tables.sweep import Sweep, Swept

_ENTRIES = 4000
_EXPIRY_MS = 10
_BEGIN, _END = store_key(0, 1, b""), store_key(0, 2, b"")


class _Values:
    def swept(self, entries: Iterator[tuple[bytes, bytes]], now_ms: int, checks_max: int) -> Swept:
        return swept_values(entries, now_ms)


def _key(number: int) -> bytes:
    return store_key(0, 1, number.to_bytes(4, "big"))


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[RocksDBStore]:
    """Its only file has a flipped byte in the middle."""
    store = RocksDBStore(tmp_path / "db")
    store.write([(_key(number), join_expiry(_EXPIRY_MS, number.to_bytes(50, "big"))) for number in range(_ENTRIES)])
    store.flush()
    store.close()
    file = next((tmp_path / "db").glob("*.sst"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    store = RocksDBStore(tmp_path / "db")
    yield store
    store.close()


def _first_missing(store: RocksDBStore) -> int:
    """Return the number of the first entry that cannot be read."""
    for number in range(_ENTRIES):
        try:
            store.get(_key(number))
        except CorruptDataError:
            return number
    raise AssertionError("no entry is damaged")


@pytest.mark.parametrize("entries_before", [0, 1, 15, 16, 17, 500])
def test_a_scan_fails_at_a_damaged_block(damaged: RocksDBStore, entries_before: int) -> None:
    first = _first_missing(damaged)
    scan = damaged.scan(_key(first - entries_before), _END)
    # RocksDB reads the block that follows together with the last entry before it.
    assert len(list(islice(scan, max(0, entries_before - 1)))) == max(0, entries_before - 1)
    with pytest.raises(CorruptDataError, match="checksum"):
        list(scan)


def test_a_sweep_fails_at_a_damaged_block(damaged: RocksDBStore) -> None:
    sweep = Sweep(damaged, 1, KeyGroupRange(0, 0), _Values(), ttl_ms=100)
    with pytest.raises(CorruptDataError, match="checksum"):
        sweep.run(10 * _ENTRIES, now_ms=_EXPIRY_MS, written_ms=_EXPIRY_MS)
    assert sweep.progress < 1
    assert sweep.next_expiry_ms(_EXPIRY_MS, None) == _EXPIRY_MS, "the key group has not been visited"


def test_a_damaged_store_says_so_after_it_was_closed(damaged: RocksDBStore) -> None:
    """A slot closes it while calls are under way. Their error is the cause, not that somebody closed the store."""
    first = _first_missing(damaged)
    damaged.close()
    with pytest.raises(CorruptDataError, match="checksum"):
        damaged.get(_key(first))
    with pytest.raises(CorruptDataError, match="checksum"):
        list(damaged.scan(_BEGIN, _END))


def test_a_sound_store_is_read_to_its_end(tmp_path: Path) -> None:
    for count in (0, 1, 15, 16, 17, 32, 33):
        store = RocksDBStore(tmp_path / str(count))
        entries = [(_key(number), b"x") for number in range(count)]
        store.write(entries)
        assert list(store.scan(_BEGIN, _END)) == entries
        store.close()
