"""Each option is in effect in the opened instance, by what RocksDB itself writes into its options file and its log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from statefulspark.config.rocksdb.options import OPTIONS, PredefinedOptions, choose
from statefulspark.errors import InternalError
from statefulspark.rocksdb.settings import RocksDBSettings
from statefulspark.state.store.base import Change
from statefulspark.state.store.open_store import open_spill
from statefulspark.state.store.rocksdb_memory import RocksDBMemory
from statefulspark.state.store.rocksdb_options import TABLE, NativeOptions, Sections, load_native
from statefulspark.state.store.rocksdb_store import RocksDBOptions, RocksDBStore

_MIB = 1 << 20

EFFECTS = {
    "thread.num": ("5", "max_background_jobs=5"),
    "files.open": ("200", "max_open_files=200"),
    "log.level": ("WARN_LEVEL", "info_log_level=WARN_LEVEL"),
    "log.max-file-size": ("2mb", "max_log_file_size=2097152"),
    "log.file-num": ("3", "keep_log_file_num=3"),
    "compaction.style": ("UNIVERSAL", "compaction_style=kCompactionStyleUniversal"),
    "compaction.level.use-dynamic-size": ("false", "level_compaction_dynamic_level_bytes=false"),
    "compaction.level.target-file-size-base": ("32 mb", "target_file_size_base=33554432"),
    "compaction.level.max-size-level-base": ("1gb", "max_bytes_for_level_base=1073741824"),
    "compaction.filter.periodic-compaction-time": ("30 d", "periodic_compaction_seconds=2592000"),
    "compression.per.level": (
        "NO_COMPRESSION;SNAPPY_COMPRESSION;ZSTD_COMPRESSION",
        "compression_per_level=kNoCompression:kSnappyCompression:kZSTD",
    ),
    "writebuffer.size": ("16mb", "write_buffer_size=16777216"),
    "writebuffer.count": ("5", "max_write_buffer_number=5"),
    "writebuffer.number-to-merge": ("2", "min_write_buffer_number_to_merge=2"),
    "block.blocksize": ("8kb", "block_size=8192"),
    "block.metadata-blocksize": ("4kb", "metadata_block_size=4096"),
    "use-bloom-filter": ("false", "filter_policy=nullptr"),
    "bloom-filter.bits-per-key": ("12.5", "filter_policy=bloomfilter:12.5:false"),
    "memory.partitioned-index-filters": ("false", "partition_filters=false"),
    "arena-block-size": ("256kb", "arena_block_size=262144"),
}
"""By Flink's name: a value that is not our default, and RocksDB's own line."""

OTHERWISE = {"log.dir", "block.cache-size", "write-batch-size"}
"""Options with a test of their own below: options files do not have them."""


def _open(path: Path, named: dict[str, str], memory: RocksDBMemory | None = None) -> RocksDBStore:
    if named.keys() & {"writebuffer.number-to-merge"}:
        named = {"writebuffer.count": "4", **named}
    settings = choose(PredefinedOptions.DEFAULT, named).settings
    return RocksDBStore(path, RocksDBOptions(settings=settings, memory=memory or RocksDBMemory.managed(16 * _MIB)))


def _lines(path: Path) -> set[str]:
    newest = max(path.glob("OPTIONS-*"), key=lambda file: int(file.name.removeprefix("OPTIONS-")))
    return {line.strip() for line in newest.read_text().splitlines()}


def _entries(count: int) -> list[Change]:
    return [(b"%08d" % number, b"v%d" % number * 20) for number in range(count)]


def test_every_option_has_its_test() -> None:
    """No name is without proof of its effect."""
    assert EFFECTS.keys() | OTHERWISE == set(OPTIONS)


@pytest.mark.parametrize("name", EFFECTS)
def test_option_is_in_effect(name: str, tmp_path: Path) -> None:
    """New, and on files that were written with other options; not there when it was not asked for. The files stay readable."""
    value, line = EFFECTS[name]
    other = _open(tmp_path / "db", {})
    assert line not in _lines(tmp_path / "db")
    other.write(_entries(500))
    other.flush()
    other.close()
    for path in (tmp_path / "new", tmp_path / "db"):
        store = _open(path, {name: value})
        assert line in _lines(path)
        store.write(_entries(500))
        store.flush()
        assert dict(store.scan(b"", b"\xff")) == dict(_entries(500))
        store.close()


def test_a_half_written_options_file_is_passed_over(tmp_path: Path) -> None:
    """As a process leaves it that dies while RocksDB writes one."""
    _open(tmp_path / "db", {}).close()
    (tmp_path / "db" / "OPTIONS-999999.dbtmp").write_text("[DBOptions]\n  max_backg")
    _open(tmp_path / "db", {"thread.num": "3"}).close()


@pytest.mark.parametrize("style", ["LEVEL", "UNIVERSAL"])
def test_compaction_style_can_be_changed_there_and_back(style: str, tmp_path: Path) -> None:
    """Files written under one style are read, merged and written under the other."""
    for turn, each in enumerate((style, "UNIVERSAL" if style == "LEVEL" else "LEVEL", style)):
        store = _open(tmp_path / "db", {"compaction.style": each})
        for _ in range(6):
            store.write(_entries(200 + turn))
            store.flush()
        assert len(list(store.scan(b"", b"\xff"))) == 200 + turn
        store.close()


def test_log_folder(tmp_path: Path) -> None:
    """``log.dir`` moves RocksDB's log out of the data folder."""
    (tmp_path / "logs").mkdir()
    store = _open(tmp_path / "db", {"log.dir": str(tmp_path / "logs")})
    assert not (tmp_path / "db" / "LOG").exists()
    assert len(list((tmp_path / "logs").iterdir())) == 1
    open_spill(tmp_path / "spill", store).destroy()
    assert len(list((tmp_path / "logs").iterdir())) == 1, "spills come and go, and would leave a log each"
    store.close()


def test_log_level(tmp_path: Path) -> None:
    """``log.level`` decides what is in the log, not only what the options file says."""
    told = []
    for level in ("INFO_LEVEL", "ERROR_LEVEL"):
        store = _open(tmp_path / level, {"log.level": level})
        store.write(_entries(10))
        store.flush()
        store.close()
        told.append("flush_started" in (tmp_path / level / "LOG").read_text())
    assert told == [True, False]


def test_write_batch_size(tmp_path: Path) -> None:
    """``write-batch-size`` bounds one write; 0 leaves only the bound on entries."""
    writes = []
    for text in ("64kb", "0"):
        settings = choose(PredefinedOptions.DEFAULT, {"write-batch-size": text}).settings
        store = RocksDBStore(tmp_path / text, RocksDBOptions(settings=settings, statistics=True))
        store.write([(b"%08d" % number, b"v" * 10_000) for number in range(200)])
        counted = re.search(r"^rocksdb\.write\.self COUNT : (\d+)", store.statistics() or "", re.MULTILINE)
        assert counted is not None
        writes.append(int(counted[1]))
        store.close()
    assert writes == [29, 1], "seven values of 10,000 bytes are the first to exceed 64 KiB"


def test_each_instance_has_its_own_cache_where_no_memory_is_shared(tmp_path: Path) -> None:
    """``block.cache-size`` counts without managed memory: two instances have two caches of that size."""
    settings = choose(PredefinedOptions.DEFAULT, {"block.cache-size": "3mb"}).settings
    stores = [RocksDBStore(tmp_path / name, RocksDBOptions(settings=settings, memory=None)) for name in ("a", "b")]
    assert [store.property_int_value("rocksdb.block-cache-capacity") for store in stores] == [3 * _MIB, 3 * _MIB]
    assert stores[0].memory.cache is not stores[1].memory.cache
    assert stores[0].memory.write_buffers is None
    for store in stores:
        store.close()


@pytest.mark.parametrize("predefined", PredefinedOptions)
def test_predefined_options(predefined: PredefinedOptions, tmp_path: Path) -> None:
    """Flink's sets, as RocksDB has them in effect."""
    flink = {
        PredefinedOptions.DEFAULT: set[str](),
        PredefinedOptions.SPINNING_DISK_OPTIMIZED: {
            "compaction_style=kCompactionStyleLevel",
            "level_compaction_dynamic_level_bytes=true",
            "max_background_jobs=4",
            "max_open_files=-1",
        },
        PredefinedOptions.SPINNING_DISK_OPTIMIZED_HIGH_MEM: {
            "block_size=131072",
            "level_compaction_dynamic_level_bytes=true",
            "max_background_jobs=4",
            "max_bytes_for_level_base=1073741824",
            "max_open_files=-1",
            "max_write_buffer_number=4",
            "min_write_buffer_number_to_merge=3",
            "target_file_size_base=268435456",
            "write_buffer_size=67108864",
            "filter_policy=bloomfilter:10:false",
        },
        PredefinedOptions.FLASH_SSD_OPTIMIZED: {"max_background_jobs=4", "max_open_files=-1"},
    }
    settings = choose(predefined, {}).settings
    store = RocksDBStore(tmp_path / "db", RocksDBOptions(settings=settings, memory=None))
    assert flink[predefined] <= _lines(tmp_path / "db")
    if predefined is PredefinedOptions.SPINNING_DISK_OPTIMIZED_HIGH_MEM:
        assert store.property_int_value("rocksdb.block-cache-capacity") == 256 * _MIB
    store.close()


def test_options_that_did_not_arrive_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A binding that drops options is found when a store is opened, and the store is not left open."""

    def forgetful(sections: Sections, *arguments: Any, **keywords: Any) -> NativeOptions:
        kept = {name: {} if name == TABLE else options for name, options in sections.items()}
        return load_native(kept, *arguments, **keywords)

    monkeypatch.setattr("statefulspark.state.store.rocksdb_store.load_native", forgetful)
    with pytest.raises(InternalError, match=r"block_size is 4096 instead of 16384"):
        RocksDBStore(tmp_path / "db", RocksDBOptions(settings=RocksDBSettings()))
    monkeypatch.undo()
    RocksDBStore(tmp_path / "db").close()
