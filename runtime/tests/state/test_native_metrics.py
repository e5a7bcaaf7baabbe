"""RocksDB's own figures: each of Flink's names gives a real number, and one that cannot is named before the job starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from statefulspark.config.rocksdb.names import METRICS
from statefulspark.state.store import native_metrics
from statefulspark.state.store.native_metrics import (
    COLUMN_FAMILY_AS_VARIABLE,
    NATIVE_METRICS,
    needs_statistics,
    read_native_metrics,
    unavailable_native_metrics,
)
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore

ENTRIES = 4000
VALUE = b"v" * 100


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksDBStore]:
    made = RocksDBStore(tmp_path / "db", RocksDBOptions(memory=RocksDBMemory.managed(16 << 20), statistics=True))
    yield made
    made.close()


def key(number: int) -> bytes:
    return b"key" + number.to_bytes(4, "big")


def figures(store: RocksDBStore) -> dict[str, float]:
    return {name if level is None else f"{name}{level}": value for name, level, value in read_native_metrics(store, METRICS)}


def test_the_manifests_names_are_those_that_can_be_read() -> None:
    """39 names of Flink; all but the one that is a label stand for a figure."""
    assert len(METRICS) == 39
    assert set(NATIVE_METRICS) == METRICS - {COLUMN_FAMILY_AS_VARIABLE}
    assert len({metric.metric for metric in NATIVE_METRICS.values()}) == len(NATIVE_METRICS)


def test_the_installed_rocksdb_has_every_one() -> None:
    assert unavailable_native_metrics(METRICS) == {}


def test_figures_follow_what_is_done(store: RocksDBStore) -> None:
    """Write, flush, get one by one and many at once, look for what is not there, scan, delete: each moves its own figures."""
    empty = figures(store)
    assert empty["bytes-written"] == empty["bytes-read"] == empty["estimate-num-keys"] == 0
    assert empty["block-cache-capacity"] == store.memory.cache_bytes

    store.write((key(number), VALUE) for number in range(ENTRIES))
    written = figures(store)
    assert written["bytes-written"] >= ENTRIES * (len(VALUE) + 7)
    assert written["num-entries-active-mem-table"] == written["estimate-num-keys"] == ENTRIES
    assert written["cur-size-all-mem-tables"] >= ENTRIES * len(VALUE)
    assert written["live-sst-files-size"] == 0

    store.flush()
    flushed = figures(store)
    assert flushed["num-entries-active-mem-table"] == 0
    assert flushed["num-files-at-level0"] == 1
    assert flushed["live-sst-files-size"] == flushed["total-sst-files-size"] > 0
    assert flushed["estimate-live-data-size"] > 0

    assert [store.get(key(number)) for number in range(10)] == [VALUE] * 10
    assert figures(store)["bytes-read"] - flushed["bytes-read"] == 10 * len(VALUE)
    assert store.get_many([key(number) for number in range(100)]) == [VALUE] * 100
    read = figures(store)
    assert read["bytes-read"] - flushed["bytes-read"] == 110 * len(VALUE), "reads of many keys count, which RocksDB keeps apart"
    assert read["block-cache-miss"] > 0
    assert read["block-cache-hit"] > 0
    assert read["bloom-filter-full-true-positive"] == 110

    assert store.get_many([key(2) + b"?" for _ in range(50)]) == [None] * 50
    assert figures(store)["bloom-filter-useful"] >= 45
    assert len(list(store.scan(b"", b"\xff"))) == ENTRIES
    assert figures(store)["iter-bytes-read"] - read["iter-bytes-read"] >= ENTRIES * len(VALUE)

    store.write((key(number), None) for number in range(7))
    assert figures(store)["num-deletes-active-mem-table"] == 7


def test_without_statistics_tickers_are_left_out_and_properties_are_there(tmp_path: Path) -> None:
    """Nothing is given out as a zero that was not counted."""
    properties = {name for name, metric in NATIVE_METRICS.items() if not metric.tickers}
    assert not needs_statistics(properties)
    assert needs_statistics({"stall-micros"})
    plain = RocksDBStore(tmp_path / "db")
    assert {name for name, _, _ in read_native_metrics(plain, METRICS)} == properties
    assert plain.statistics() is None
    plain.close()


def test_a_name_that_this_rocksdb_does_not_know_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """By asking RocksDB: a property and a ticker that it has no more, and a name of nobody."""
    gone = {
        "num-live-versions": replace(NATIVE_METRICS["num-live-versions"], name="num-dead-versions"),
        "stall-micros": replace(NATIVE_METRICS["stall-micros"], tickers=("rocksdb.stall.nanos",)),
    }
    monkeypatch.setattr(native_metrics, "NATIVE_METRICS", {**NATIVE_METRICS, **gone})
    assert unavailable_native_metrics(["num-live-versions", "stall-micros", "bytes-read", "colour", COLUMN_FAMILY_AS_VARIABLE]) == {
        "colour": "it is not a native metric",
        "num-live-versions": "this RocksDB has no property for it",
        "stall-micros": "this RocksDB has no ticker for it",
    }
    assert unavailable_native_metrics([]) == {}
