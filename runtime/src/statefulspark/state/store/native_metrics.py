"""RocksDB's native metrics under Flink's names: the property or ticker behind each, and how to read it.

There are two kinds. *Properties* cost nothing until they are read. *Tickers* need RocksDB's statistics, which count
every operation of the instance, so they are enabled only if at least one ticker is requested.

All states of a slot share one column family of one instance, so these metrics are per slot, not per state. A batch spills
to a separate instance, which is not counted; both share the cache, so cache metrics include both.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, Self

from rocksdict import Options, Rdict

COLUMN_FAMILY_AS_VARIABLE: Final = "column-family-as-variable"
"""Not a metric: adds the label ``column_family``."""

_LEVELS: Final = "num-files-at-level"
_LEVELS_MAX: Final = 64
_COUNT: Final = re.compile(r"^(rocksdb\.\S+) COUNT : (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NativeMetric:
    """One figure.

    Attributes:
        name: Flink's, without the prefix ``state.backend.rocksdb.metrics.``.
        metric: Ours for Prometheus, with the unit, without prefix and ``_total``.
        kind: counter for tickers, gauge for properties.
        meaning: One line.
        tickers: Of RocksDB's statistics, added up; empty for a property.
        scale: Factor from RocksDB's number to the unit of ``metric``.
    """

    name: str
    metric: str
    kind: Literal["counter", "gauge"]
    meaning: str
    tickers: tuple[str, ...] = ()
    scale: float = 1.0

    @property
    def by_level(self) -> bool:
        """True if the metric has one value per level."""
        return self.name == _LEVELS

    @property
    def property_name(self) -> str:
        """RocksDB's name of the property."""
        return f"rocksdb.{self.name}"


def _gauge(name: str, unit: str, meaning: str) -> NativeMetric:
    metric = f"rocksdb_{name.replace('-', '_')}"
    return NativeMetric(name, metric if not unit or metric.endswith(unit) else f"{metric}_{unit}", "gauge", meaning)


def _ticker(name: str, unit: str, meaning: str, *tickers: str, scale: float = 1.0) -> NativeMetric:
    metric = f"rocksdb_{name.removesuffix('-micros').replace('-', '_')}{'_' if unit else ''}{unit}"
    return NativeMetric(name, metric, "counter", meaning, tickers, scale)


NATIVE_METRICS: Final = {
    each.name: each
    for each in (
        _gauge("actual-delayed-write-rate", "bytes_per_second", "Rate to which writes are slowed down; 0 when they are not."),
        _gauge("background-errors", "", "Errors of flushes and compactions so far."),
        _gauge("block-cache-capacity", "bytes", "Capacity of the block cache, which write buffers are charged to."),
        _gauge("block-cache-pinned-usage", "bytes", "Part of the block cache that cannot be evicted now."),
        _gauge("block-cache-usage", "bytes", "Used part of the block cache, write buffers included."),
        _gauge("compaction-pending", "", "1 when a compaction is due."),
        _gauge("cur-size-active-mem-table", "bytes", "The write buffer that takes writes."),
        _gauge("cur-size-all-mem-tables", "bytes", "Write buffers that are not flushed."),
        _gauge("estimate-live-data-size", "bytes", "Estimated live data in table files."),
        _gauge("estimate-num-keys", "", "Estimated entries, those of write buffers included."),
        _gauge("estimate-pending-compaction-bytes", "bytes", "Bytes that compactions must rewrite until every level is in its size."),
        _gauge("estimate-table-readers-mem", "bytes", "Memory of table readers outside the block cache."),
        _gauge("is-write-stopped", "", "1 while writes are stopped."),
        _gauge("live-sst-files-size", "bytes", "Table files of the newest version."),
        _gauge("mem-table-flush-pending", "", "1 when a write buffer waits for its flush."),
        _gauge("num-deletes-active-mem-table", "", "Deletes in the write buffer that takes writes."),
        _gauge("num-deletes-imm-mem-tables", "", "Deletes in write buffers that are being flushed."),
        _gauge("num-entries-active-mem-table", "", "Entries in the write buffer that takes writes."),
        _gauge("num-entries-imm-mem-tables", "", "Entries in write buffers that are being flushed."),
        _gauge(_LEVELS, "", "Table files of a level; label level."),
        _gauge("num-immutable-mem-table", "", "Write buffers that are not flushed yet."),
        _gauge("num-live-versions", "", "Versions of the file list that iterators or compactions hold."),
        _gauge("num-running-compactions", "", "Compactions that run."),
        _gauge("num-running-flushes", "", "Flushes that run."),
        _gauge("num-snapshots", "", "Snapshots of the instance that are not released."),
        _gauge("size-all-mem-tables", "bytes", "Write buffers, also flushed ones that iterators hold."),
        _gauge("total-sst-files-size", "bytes", "Table files on disk, old versions included."),
        _ticker("block-cache-hit", "", "Blocks found in the block cache.", "rocksdb.block.cache.hit"),
        _ticker("block-cache-miss", "", "Blocks read from disk.", "rocksdb.block.cache.miss"),
        _ticker("bloom-filter-full-positive", "", "Look-ups that a filter let pass.", "rocksdb.bloom.filter.full.positive"),
        _ticker("bloom-filter-full-true-positive", "", "Look-ups let pass that found the key.", "rocksdb.bloom.filter.full.true.positive"),
        _ticker("bloom-filter-useful", "", "Look-ups that a filter saved from reading a file.", "rocksdb.bloom.filter.useful"),
        # Most of our reads are multi-gets, which RocksDB counts apart and Flink does not use.
        _ticker("bytes-read", "", "Bytes of values got by key.", "rocksdb.bytes.read", "rocksdb.number.multiget.bytes.read"),
        _ticker("bytes-written", "", "Bytes of entries written.", "rocksdb.bytes.written"),
        _ticker("compaction-read-bytes", "", "Bytes that compactions read.", "rocksdb.compact.read.bytes"),
        _ticker("compaction-write-bytes", "", "Bytes that compactions wrote.", "rocksdb.compact.write.bytes"),
        _ticker("iter-bytes-read", "", "Bytes that scans went over.", "rocksdb.db.iter.bytes.read"),
        _ticker("stall-micros", "seconds", "Time for which writes were held up.", "rocksdb.stall.micros", scale=1e-6),
    )
}
"""By Flink's name."""


class NativeMetricSource(Protocol):
    """A RocksDB instance that can be asked."""

    def property_int_value(self, name: str) -> int | None:
        """Return a property as a number; None when it has none of that name."""

    def statistics(self) -> str | None:
        """Return the statistics as RocksDB prints them; None when they are off."""


def needs_statistics(names: Iterable[str]) -> bool:
    """Return whether one of the metrics is a ticker."""
    return any(NATIVE_METRICS[name].tickers for name in names if name in NATIVE_METRICS)


def read_native_metrics(instance: NativeMetricSource, names: Iterable[str]) -> Iterator[tuple[str, str | None, float]]:
    """Yield (Flink's name, level or None, value in the unit of its metric) of each of ``names`` that the instance has."""
    wanted = [NATIVE_METRICS[name] for name in names if name in NATIVE_METRICS]
    tickers = _tickers(instance) if any(metric.tickers for metric in wanted) else {}
    for metric in wanted:
        if metric.tickers:
            if all(ticker in tickers for ticker in metric.tickers):
                yield metric.name, None, sum(tickers[ticker] for ticker in metric.tickers) * metric.scale
        elif metric.by_level:
            for level, files in enumerate(_files_at_levels(instance)):
                yield metric.name, str(level), files
        elif (value := instance.property_int_value(metric.property_name)) is not None:
            yield metric.name, None, value


def unavailable_native_metrics(names: Iterable[str]) -> dict[str, str]:
    """Return those of ``names`` that the RocksDB installed here cannot give, each with the reason."""
    wanted = sorted({name for name in names if name != COLUMN_FAMILY_AS_VARIABLE})
    if not wanted:
        return {}
    with tempfile.TemporaryDirectory(prefix="statefulspark-probe-") as folder, _Probe(Path(folder)) as probe:
        given = {name for name, _, _ in read_native_metrics(probe, wanted)}
    return {
        name: f"this RocksDB has no {'ticker' if NATIVE_METRICS[name].tickers else 'property'} for it"
        if name in NATIVE_METRICS
        else "it is not a native metric"
        for name in wanted
        if name not in given
    }


class _Probe:
    """An empty instance with statistics."""

    def __init__(self, folder: Path) -> None:
        self._options = Options(raw_mode=True)
        self._options.create_if_missing(True)
        self._options.enable_statistics()
        self._db = Rdict(str(folder), options=self._options)

    def property_int_value(self, name: str) -> int | None:
        return self._db.property_int_value(name)

    def statistics(self) -> str | None:
        return self._options.get_statistics()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()


def _tickers(instance: NativeMetricSource) -> dict[str, int]:
    return {name: int(count) for name, count in _COUNT.findall(instance.statistics() or "")}


def _files_at_levels(instance: NativeMetricSource) -> Iterator[int]:
    for level in range(_LEVELS_MAX):
        files = instance.property_int_value(f"rocksdb.{_LEVELS}{level}")
        if files is None:
            return
        yield files
