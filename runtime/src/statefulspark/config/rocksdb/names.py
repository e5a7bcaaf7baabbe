"""Flink's names of RocksDB's native metrics (prefix ``state.backend.rocksdb.metrics.``)."""

from __future__ import annotations

METRICS = frozenset(
    {
        "actual-delayed-write-rate",
        "background-errors",
        "block-cache-capacity",
        "block-cache-hit",
        "block-cache-miss",
        "block-cache-pinned-usage",
        "block-cache-usage",
        "bloom-filter-full-positive",
        "bloom-filter-full-true-positive",
        "bloom-filter-useful",
        "bytes-read",
        "bytes-written",
        "column-family-as-variable",
        "compaction-pending",
        "compaction-read-bytes",
        "compaction-write-bytes",
        "cur-size-active-mem-table",
        "cur-size-all-mem-tables",
        "estimate-live-data-size",
        "estimate-num-keys",
        "estimate-pending-compaction-bytes",
        "estimate-table-readers-mem",
        "is-write-stopped",
        "iter-bytes-read",
        "live-sst-files-size",
        "mem-table-flush-pending",
        "num-deletes-active-mem-table",
        "num-deletes-imm-mem-tables",
        "num-entries-active-mem-table",
        "num-entries-imm-mem-tables",
        "num-files-at-level",
        "num-immutable-mem-table",
        "num-live-versions",
        "num-running-compactions",
        "num-running-flushes",
        "num-snapshots",
        "size-all-mem-tables",
        "stall-micros",
        "total-sst-files-size",
    }
)
"""Native metrics; ``column-family-as-variable`` changes how they are labelled."""
