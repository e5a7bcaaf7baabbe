"""Which choice of a RocksDB option wins, what is refused, and what managed memory overrides."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.config.rocksdb.options import (
    OPTIONS,
    PREDEFINED,
    REFUSED,
    PredefinedOptions,
    choose,
    read_option,
)
from statefulspark.errors import InvalidInputError
from statefulspark.memory.split import MemorySplit
from statefulspark.rocksdb.chosen import Chosen, bound_of_instance, overridden_by, with_factory
from statefulspark.rocksdb.settings import CompactionStyle, Compression, RocksDBSettings

MIB = 1 << 20
HIGH_MEM = PredefinedOptions.SPINNING_DISK_OPTIMIZED_HIGH_MEM


def test_precedence() -> None:
    """Ours, then predefined, then single options, then the factory; and who chose what is known."""
    seen = []

    def factory(settings: RocksDBSettings) -> RocksDBSettings:
        seen.append(settings)
        return replace(settings, background_jobs=7)

    chosen = with_factory(choose(HIGH_MEM, {"block.blocksize": "8kb", "thread.num": "6"}), factory)
    assert seen == [replace(chosen.settings, background_jobs=6)]
    assert chosen.settings == RocksDBSettings(
        block_bytes=8 << 10,
        background_jobs=7,
        block_cache_bytes=256 * MIB,
        dynamic_level_bytes=True,
        level_base_bytes=1 << 30,
        write_buffer_count=4,
        write_buffers_to_merge=3,
        target_file_bytes=256 * MIB,
    )
    assert (chosen.set_by["background_jobs"], chosen.set_by["block_bytes"]) == ("optionsFactory", "options")
    assert chosen.set_by["block_cache_bytes"] == "predefinedOptions"
    assert "metadata_block_bytes" not in chosen.set_by


def test_each_attribute_has_one_name() -> None:
    """Every setting of a RocksDBSettings can be chosen by one of Flink's names, and none is both refused and offered."""
    assert sorted(option.attribute for option in OPTIONS.values()) == sorted(each.name for each in fields(RocksDBSettings))
    assert not OPTIONS.keys() & REFUSED.keys()
    assert all(set(given) <= {each.name for each in fields(RocksDBSettings)} for given in PREDEFINED.values())


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("thread.num", "0", r"expected 1 \.\. 64"),
        ("thread.num", "two", "not a whole number. Write digits only"),
        ("files.open", "3", "too few. Use -1 for all"),
        ("writebuffer.size", "64", "not a byte size. Write a number and a unit"),
        ("writebuffer.size", "1kb", r"expected 64Ki \.\. 8Gi"),
        ("compaction.style", "FIFO", "deletes the oldest files, and with them state. Use LEVEL or UNIVERSAL"),
        ("compaction.style", "NONE", "Use LEVEL or UNIVERSAL"),
        ("compaction.style", "TIERED", "unknown. Use one of: LEVEL, UNIVERSAL"),
        ("compression.per.level", "XPRESS", "unknown. Use one of: NO_COMPRESSION"),
        ("compression.per.level", ";", "1 to 7 Compressions"),
        ("use-bloom-filter", "yes", "neither true nor false"),
        ("bloom-filter.bits-per-key", "many", "not a number"),
        ("bloom-filter.block-based-mode", "true", "no longer have block-based filters"),
        ("compaction.filter.periodic-compaction-time", "30", "not a duration"),
        ("compaction.filter.query-time-after-num-entries", "1000", "no compaction filters in Python; expired state is swept"),
        ("arena-block-size", "1kb", "too small. Use 0"),
        ("log.dir", " ", "empty. Name a folder"),
        ("memory.managed", "true", "has its own field in the spec. Set spec.stateBackend.rocksdb.memory.managed"),
        ("compaction.styel", "LEVEL", "is not a RocksDB option"),
    ],
)
def test_refusals_say_why(name: str, text: str, sentence: str) -> None:
    """What cannot take effect is refused with the reason and the remedy."""
    with pytest.raises(InvalidInputError, match=sentence):
        read_option(name, text)


def test_values() -> None:
    """Flink's spellings are read."""
    assert read_option("compression.per.level", "no_compression;ZSTD_COMPRESSION") == {
        "compression": (Compression.NO_COMPRESSION, Compression.ZSTD_COMPRESSION)
    }
    assert read_option("compaction.style", "universal") == {"compaction_style": CompactionStyle.UNIVERSAL}
    assert read_option("bloom-filter.block-based-mode", "false") == {}
    assert read_option("writebuffer.number-to-merge", "3") == {"write_buffers_to_merge": 3}


def test_options_must_go_together() -> None:
    """Flink lets RocksDB correct it silently."""
    with pytest.raises(InvalidInputError, match="write_buffers_to_merge: 3 full write buffers cannot exist"):
        choose(PredefinedOptions.DEFAULT, {"writebuffer.number-to-merge": "3"})


def test_a_factory_that_raises_or_returns_something_else() -> None:
    """Both name the factory and the remedy."""

    def broken(_: RocksDBSettings) -> RocksDBSettings:
        raise KeyError("block")

    def forgetful(_: RocksDBSettings) -> None:
        """Returns nothing."""

    def exaggerating(settings: RocksDBSettings) -> RocksDBSettings:
        return replace(settings, block_bytes=1 << 40)

    with pytest.raises(InvalidInputError, match=r"optionsFactory: the options factory .*broken raised KeyError: 'block'"):
        with_factory(Chosen(), broken)
    with pytest.raises(InvalidInputError, match=r"forgetful returned a NoneType. Return a RocksDBSettings"):
        with_factory(Chosen(), forgetful)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(InvalidInputError, match=r"raised InvalidInputError: block_bytes: expected 512b \.\. 64Mi"):
        with_factory(Chosen(), exaggerating)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("block_bytes", "16k"),
        ("block_bytes", True),
        ("bloom_filter", 1),
        ("compression", [Compression.LZ4_COMPRESSION]),
        ("compression", ("lz4",)),
        ("log_level", "INFO_LEVEL"),
        ("log_dir", 1),
        ("write_buffer_count", 2.0),
    ],
)
def test_a_factory_cannot_return_wrong_types(attribute: str, value: Any) -> None:
    """They are found where they are made, not when RocksDB reads them."""
    with pytest.raises(InvalidInputError, match=f"^{attribute}: expected"):
        replace(RocksDBSettings(), **{attribute: value})


def test_managed_memory_says_what_it_overrides() -> None:
    """Cache and buffer settings that somebody chose and that do not hold are named with who chose them and what holds instead."""
    split = MemorySplit.of(128 * MIB)
    assert overridden_by(split, choose(PredefinedOptions.DEFAULT, {})) == ()
    assert overridden_by(split, choose(PredefinedOptions.DEFAULT, {"writebuffer.size": "16mb", "writebuffer.count": "2"})) == ()
    found = overridden_by(split, choose(HIGH_MEM, {"writebuffer.count": "3", "writebuffer.number-to-merge": "1"}))
    assert [(each.option, each.set_by, each.wanted) for each in found] == [
        ("block.cache-size", "predefinedOptions", "256Mi"),
        ("writebuffer.size", "predefinedOptions", "64Mi"),
        ("writebuffer.count", "options", "3"),
    ]
    assert [each.effect for each in found] == [
        "one cache of 106.67Mi for the whole slot",
        "a write buffer is flushed at 37.33Mi: all of the slot share 42.67Mi",
        "all write buffers of the slot together take 42.67Mi",
    ]


@given(
    size=st.integers(1, 512), count=st.integers(2, 8), managed=st.integers(16, 4096), by=st.sampled_from(["options", "predefinedOptions"])
)
def test_an_override_is_reported_exactly_when_the_choice_does_not_hold(size: int, count: int, managed: int, by: str) -> None:
    """Against the definition: a single write buffer of that size, or that many of them, exceed what the slot may hold."""
    split = MemorySplit.of(managed * MIB)
    settings = RocksDBSettings(write_buffer_bytes=size * MIB, write_buffer_count=count)
    chosen = Chosen(settings=settings, set_by={"write_buffer_bytes": by, "write_buffer_count": by})
    reported = {each.option for each in overridden_by(split, chosen)}
    limit = 2 * managed * MIB / 6
    assert ("writebuffer.size" in reported) == (size * MIB > limit * 7 / 8)
    assert ("writebuffer.count" in reported) == (size * MIB * count > limit)


def test_bound_without_shared_memory() -> None:
    """Flink's "about 140 MB for each": 8 MiB of cache and two write buffers of 64 MiB."""
    assert bound_of_instance(RocksDBSettings()) == 136 * MIB
