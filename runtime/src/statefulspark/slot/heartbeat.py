"""The report in each heartbeat of a slot: its process, its store, its states, its steps, RocksDB's own metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import psutil

from statefulspark.checkpoint.write.progress import UploadedBytes
from statefulspark.errors import CorruptDataError
from statefulspark.memory.tuning import MemoryTuning
from statefulspark.rpc.messages.heartbeat import ContainerMemory, NativeMemory, NativeMetric, SlotReport
from statefulspark.slot.container import container_memory
from statefulspark.slot.keyed_step import KeyedStep
from statefulspark.slot.memory_split import TunedMemory
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.store.native_metrics import read_native_metrics
from statefulspark.state.store.rocksdb_store import RocksDBStore
from statefulspark.state.store.split_store import rocksdb_part
from statefulspark.state.store.state_sizes import StateSizes

_SIZES_S: Final = 0.004
"""Time per heartbeat for measuring states: less than half a percent of a core."""
_PSS_REPORTS: Final = 10
"""Heartbeats between two readings of what costs more or changes seldom: the proportional set size, for which the kernel walks all pages, and the
container's limit."""


class SlotReporter:
    """Reads the metrics; used by the thread that sends heartbeats.

    Args:
        restore_ms: How long the slot took to restore its state.
        baseline_bytes: Resident memory of the process before it opened its store.
        store: The slot's.
        sizes: Of its states.
        keyed_steps: By uid.
        native_metrics: Flink's names of those to read.
        tuned: The slot's native memory, when the driver may change it.
        uploading: Returns how far the upload of a snapshot is.
    """

    def __init__(
        self,
        *,
        restore_ms: int,
        baseline_bytes: int,
        store: KeyValueStore,
        sizes: StateSizes,
        keyed_steps: Mapping[str, KeyedStep],
        native_metrics: tuple[str, ...],
        tuned: TunedMemory | None,
        uploading: Callable[[], UploadedBytes | None],
    ) -> None:
        self._restore_ms = restore_ms
        self._baseline_bytes = baseline_bytes
        self._store = store
        self._sizes = sizes
        self._keyed_steps = keyed_steps
        self._native_metrics = native_metrics
        self._tuned = tuned
        self._uploading = uploading
        self._process = psutil.Process()
        self._pss_bytes = 0
        self._container: ContainerMemory | None = None
        self._reports = 0

    def read(self) -> SlotReport:
        """Return the report."""
        if self._reports % _PSS_REPORTS == 0:
            self._pss_bytes = int(self._process.memory_full_info().pss)
            self._container = container_memory()
        self._reports += 1
        with suppress(CorruptDataError):  # who reads damaged state for the job reports it
            self._sizes.step(_SIZES_S)
        store = self._store
        rocksdb = rocksdb_part(store)
        return SlotReport(
            restore_ms=self._restore_ms,
            rss_bytes=self._process.memory_info().rss,
            pss_bytes=self._pss_bytes,
            baseline_bytes=self._baseline_bytes,
            state_bytes=store.size_bytes(),
            coverage=self._sizes.coverage(),
            states=self._sizes.by_state_id(),
            steps={uid: keyed_step.report() for uid, keyed_step in self._keyed_steps.items()},
            container=self._container,
            memory=self._native_memory(rocksdb) if rocksdb is not None else None,
            native=self._native(rocksdb) if rocksdb is not None else (),
            uploading=self._uploading(),
        )

    def follow(self, wanted: MemoryTuning | None) -> None:
        """Divide the native memory as the driver wants it; see `TunedMemory.follow`."""
        if self._tuned is not None:
            self._tuned.follow(wanted)

    def _native_memory(self, store: RocksDBStore) -> NativeMemory:
        memory = store.memory
        buffers = memory.write_buffers
        return NativeMemory(
            tuning=self._tuned.tuning if self._tuned is not None else None,
            cache_bytes=store.property_int_value("rocksdb.block-cache-capacity"),
            cache_used_bytes=memory.cache.get_usage(),
            write_buffer_bytes=buffers.get_buffer_size() if buffers is not None else None,
            write_buffer_used_bytes=buffers.get_usage() if buffers is not None else None,
        )

    def _native(self, store: RocksDBStore) -> tuple[NativeMetric, ...]:
        found = read_native_metrics(store, self._native_metrics)
        return tuple(NativeMetric(name=name, level=level, value=value) for name, level, value in found)
