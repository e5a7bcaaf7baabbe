"""A job without Spark: the runtime's own coordinator, exchanges and slot processes, driven batch by batch.

Slots live in processes of their own (`soak.slot`). What Spark would do is done here: batches are numbered, rows handed to
`exchange_partition`, commits written.
"""

from __future__ import annotations

import os
import pickle
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import cloudpickle
import numpy as np
import pyarrow as pa
from soak.load import UID, key_hashes, rows, step

from statefulspark.checkpoint.lineage.identity import ensure_job
from statefulspark.checkpoint.lineage.lineage import begin_attempt
from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.manifest import validate_job
from statefulspark.coordinator.coordinator import Coordinator, Listen
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.recovery import batch_log, state_registry
from statefulspark.coordinator.durable.spark_location import SparkLocation
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.coordinator.snapshots.pending import CheckpointTimes
from statefulspark.exchange.config import ExchangeConfig, SlotConfig
from statefulspark.exchange.rocksdb_choice import RocksDBChoice
from statefulspark.exchange.task import exchange_partition
from statefulspark.job.start.manifest_settings import memory_tuner
from statefulspark.keygroups import slot_of
from statefulspark.rpc.messages.batches import PartitionRun
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings

MAX_PARALLELISM: Final = 128
_LARGE_EVERY: Final = 12
BENCHES: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakSettings:
    """What a soak does.

    Attributes:
        managed_bytes: Managed memory of each slot.
        written_bytes: State written before it ends, all slots together, before encoding and compression.
        seconds_max: Time after which it ends with less written.
        slots: Number of slots.
        states: States of the one step.
        keys: Number of keys; together with the states they make the live data, about 600 KiB per key.
        cache_bytes: Bound of decoded objects, per slot.
        dirty_bytes: Bound of a batch's changes in memory, per slot.
        batch_rows: Rows of a usual batch, per slot.
        large_batch_rows: Rows of every twelfth batch, per slot, which spills.
        checkpoint_s: Pause between checkpoints; None takes none.
        snapshot_s: Least time for which a snapshot keeps the store to itself, so that what batches commit meanwhile is held.
        without_store: For the baseline: everything but the store.
        environment: Of the slot processes, over this one's.
    """

    managed_bytes: int
    written_bytes: int
    seconds_max: float = float("inf")
    slots: int = 2
    states: int = 50
    keys: int = 4_000
    cache_bytes: int = 16 << 20
    dirty_bytes: int = 32 << 20
    batch_rows: int = 150
    large_batch_rows: int = 600
    checkpoint_s: float | None = 60.0
    snapshot_s: float = 2.0
    without_store: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


class SoakJob:
    """One run; use as a context manager, which starts and ends the slots.

    Args:
        settings: What to do.
        work: Folder for everything, new or empty.

    Attributes:
        written_bytes: Written so far.
        read_bytes: Read so far by the function's own scans.
        batches: Finished batches.
        checkpoints: Complete checkpoints.
    """

    def __init__(self, settings: SoakSettings, work: Path) -> None:
        self.settings = settings
        self.written_bytes = 0
        self.read_bytes = 0
        self.batches = 0
        self._work = work
        self._processes: list[subprocess.Popen[bytes]] = []
        self._location = work / "location"
        for name in ("commits", "offsets"):
            (self._location / name).mkdir(parents=True)
        self._store = open_store((work / "storage").as_uri() + "/soak", StorageSettings())
        self._coordinator = self._make_coordinator()
        hashes = key_hashes(settings.keys)
        slots = np.array([slot_of(int(each) % MAX_PARALLELISM, settings.slots, MAX_PARALLELISM) for each in hashes])
        self._keys = [np.flatnonzero(slots == slot) for slot in range(settings.slots)]
        self._hashes = hashes
        self._chance = np.random.default_rng(3)

    def _make_coordinator(self) -> Coordinator:
        store = self._store
        ensure_job(store, "soak", MAX_PARALLELISM)
        lineage = begin_attempt(store, now_ms=int(time.time() * 1000), open_store=lambda url: open_store(url, StorageSettings()))
        durable = DurableJob(
            store=store,
            open_store=lambda url: open_store(url, StorageSettings()),
            job_id="soak",
            name="soak",
            max_parallelism=MAX_PARALLELISM,
            backend="rocksdb",
            lineage=lineage,
            savepoint_dir=None,
            retained=1,
        )
        return Coordinator(
            durable=durable,
            batches=batch_log(lineage, {UID: (0,)}),
            states=state_registry(lineage, store, changelogs=durable.changelogs),
            slots=SlotTable(self.settings.slots, slots_per_executor=None),
            location=SparkLocation(LocationFiles(self._location), SparkStateUploader(self._location), has_state=False),
            listen=Listen(host=None, secret=secrets.token_urlsafe(16)),
            recovered=None,
            memory=memory_tuner(_manifest(self.settings.managed_bytes), RocksDBChoice()),
            times=CheckpointTimes(interval_s=self.settings.checkpoint_s, timeout_s=300.0),
        )

    @property
    def pids(self) -> list[int]:
        """Process ids of the slots, in order."""
        return [process.pid for process in self._processes]

    @property
    def checkpoints(self) -> int:
        """Complete checkpoints so far."""
        last = self._coordinator.view().last_checkpoint
        return 0 if last is None else last.id

    @property
    def logs(self) -> list[Path]:
        """What each slot writes about itself, JSON lines."""
        return [self._work / f"slot-{slot}.jsonl" for slot in range(self.settings.slots)]

    def __enter__(self) -> Self:
        endpoint = self._coordinator.endpoint
        settings = self.settings
        config = SlotConfig(
            coordinator=endpoint,
            job_name="soak",
            parallelism=settings.slots,
            max_parallelism=MAX_PARALLELISM,
            steps=cloudpickle.dumps([step(MAX_PARALLELISM, settings.states)]),
            python_path=(),
            store=self._store,
            storage=StorageSettings(),
            backend="rocksdb",
            managed_bytes=settings.managed_bytes,
            local_dir=str(self._work / "local"),
            cache_bytes=settings.cache_bytes,
            dirty_bytes=settings.dirty_bytes,
            # A machine that stands still for a while must not end hours of soaking.
            orphan_s=600.0,
        )
        self._exchange = ExchangeConfig(
            coordinator=endpoint, uid=UID, max_parallelism=MAX_PARALLELISM, parallelism=settings.slots, start_wait_s=120
        )
        path = self._work / "config"
        path.write_bytes(pickle.dumps(config))
        for slot in range(settings.slots):
            command = [sys.executable, "-m", "soak.slot", str(path), str(slot), str(self.logs[slot])]
            command += ["--snapshot-s", str(settings.snapshot_s), *["--without-store"] * settings.without_store]
            environment = dict(os.environ) | dict(settings.environment)
            self._processes.append(subprocess.Popen(command, cwd=BENCHES, env=environment))
        return self

    def __exit__(self, *_: object) -> None:
        self._coordinator.slots.stop()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._coordinator.close()

    def wait_ready(self) -> None:
        """Wait until all slots serve."""
        while not self._coordinator.view().all_ready:
            self._check_alive()
            time.sleep(0.05)

    def run(self) -> None:
        """Run batches until enough is written and a checkpoint is complete if there shall be any, or time is up."""
        until = time.monotonic() + self.settings.seconds_max
        with ThreadPoolExecutor(self.settings.slots) as pool:
            while not self._done() and time.monotonic() < until:
                self._check_alive()
                large = self.batches % _LARGE_EVERY == _LARGE_EVERY - 1
                count = self.settings.large_batch_rows if large else self.settings.batch_rows
                for written, read in pool.map(self._run_slot, [self._rows(slot, count) for slot in range(self.settings.slots)]):
                    self.written_bytes += written
                    self.read_bytes += read
                (self._location / "commits" / str(self.batches)).write_text("v1")
                (self._location / "commits" / str(self.batches - 2)).unlink(missing_ok=True)
                self.batches += 1

    def _done(self) -> bool:
        return self.written_bytes >= self.settings.written_bytes and (self.settings.checkpoint_s is None or self.checkpoints > 0)

    def _rows(self, slot: int, count: int) -> pa.RecordBatch:
        return rows(self._chance, self._keys[slot], self._hashes[self._keys[slot]], count)

    def _run_slot(self, batch: pa.RecordBatch) -> tuple[int, int]:
        task = PartitionRun("0", 0, 0)  # counts only for partitions without rows, of which there are none
        results = list(exchange_partition(self._exchange, self.batches, task, _pieces(batch)))
        return tuple(sum(sum(result.column(name).to_pylist()) for result in results) for name in ("written", "read"))  # type: ignore[return-value]  # two of them

    def _check_alive(self) -> None:
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"a slot process ended with {process.returncode}")


def _manifest(managed_bytes: int) -> StatefulSparkJob:
    spec = {
        "job": {"script": "soak.py"},
        "checkpointing": {"dir": "file:///soak"},
        "stateBackend": {"rocksdb": {"memory": {"fixedPerSlot": f"{managed_bytes >> 10}Ki"}}},
    }
    return validate_job({"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "metadata": {"name": "soak"}, "spec": spec})


def _pieces(batch: pa.RecordBatch) -> Iterator[Any]:
    yield batch
