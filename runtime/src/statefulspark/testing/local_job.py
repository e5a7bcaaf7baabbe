"""LocalJob: the parts of a test job that outlive its drivers: storage, source, sink, clock and code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from statefulspark.checkpoint.formats.pipeline import StepKey
from statefulspark.checkpoint.lineage.identity import ensure_job
from statefulspark.checkpoint.write.inline import DEFAULT_LIMITS, InlineLimits
from statefulspark.coordinator.batches.event_times import Delays
from statefulspark.keygroups import slot_of
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store
from statefulspark.testing.inputs import ExchangeRows

JOB = "job"
"""Name of the job, and of its folder in storage."""

Row = tuple[Any, ...]


@dataclass(kw_only=True)
class LocalJob:
    """One job with one keyed step, on a folder of the local disk."""

    folder: Path
    step: StepSpec
    """The code of the job, for drivers that start from now on."""
    backend: str = "memory"
    """memory | rocksdb."""
    heap_timers: bool = False
    """True if slots that start from now on keep timers on the heap beside RocksDB."""
    allow_non_restored: bool = False
    retained: int = 1
    """Checkpoints to keep."""
    max_age_s: float | None = None
    """Seconds for which a checkpoint is kept that is not the newest one; None for no limit."""
    claims: bool = False
    """True if drivers claim the savepoint that they start from."""
    incremental: bool = True
    """True if a checkpoint may name files of an earlier one."""
    at_least_once: bool = False
    """True if drivers that start from now on run batches without changelogs."""
    async_snapshots: bool = True
    """True if batches go on while slots that start from now on write a snapshot."""
    inline_limits: InlineLimits = DEFAULT_LIMITS
    """Limits of checkpoints of the backend ``memory``."""
    input: list[Any] = field(default_factory=list)
    """Everything the source has had so far; a row's place is its offset."""
    sink: dict[int, list[Row]] = field(default_factory=dict)
    """Output rows by batch. Like Spark's file sink, it ignores a batch that it already has."""
    side_sinks: dict[str, dict[int, list[Row]]] = field(default_factory=dict)
    """The same for each side output, by its name."""
    stored_key: StepKey | None = None
    """The step's key in the savepoint of a job with Spark that the first driver starts from; None if it starts from none."""
    disk: Path | None = None
    """Folder in which slots work. Defaults to the job's own folder."""
    drivers: int = 0
    """Number of drivers so far."""
    processing_time_ms: int = 0

    def __post_init__(self) -> None:
        """Create the job in storage, or check that the folder is this job's."""
        self.store: ObjectStore = open_store(f"file://{self.folder}/storage/{JOB}")
        ensure_job(self.store, JOB, self.step.max_parallelism)
        for output in self.step.side_outputs:
            self.side_sinks.setdefault(output.tag.tag_id, {})
        self._rows = ExchangeRows(self.step, self.stored_key)

    def now_ms(self) -> int:
        """Returns the current time for the coordinator."""
        return self.processing_time_ms

    def delays_ms(self) -> dict[str, Delays]:
        """Returns the watermark delays of each step."""
        return {self.step.uid: self.step.delays_ms}

    def all_steps(self) -> list[StepSpec]:
        """Returns the keyed steps that slots run."""
        return [self.step]

    def store_of_slot(self, index: int) -> ObjectStore:  # noqa: ARG002  a job that injects faults gives each slot its own
        """Returns the storage that slot ``index`` uses."""
        return self.store

    def slots_of(self, rows: Sequence[Any], parallelism: int) -> list[int | None]:
        """Returns the slot of each row; None for a row of the broadcast stream, which goes to every slot."""
        return [None if key_hash is None else self._slot(key_hash, parallelism) for key_hash in self._rows.hashes(rows)]

    def slot_of_key(self, key: Any, parallelism: int) -> int:
        """Returns the slot of a key, a tuple for several key columns."""
        return self._slot(self._rows.hash_of_key(key), parallelism)

    def _slot(self, key_hash: int, parallelism: int) -> int:
        groups = self.step.max_parallelism
        return slot_of(key_hash % groups, parallelism, groups)

    def batch_of(self, rows: Sequence[Any], slot: int = 0) -> pa.RecordBatch:
        """Returns the rows as Spark's shuffle hands them to the exchange of a slot.

        Raises:
            InvalidInputError: A row does not fit the input schema.
        """
        return self._rows.batch(rows, slot)

    def tick_of(self, slot: int) -> pa.RecordBatch:
        """Returns the row of the tick source, which has no data and makes the slot run the batch."""
        return self._rows.tick(slot)
