"""Which checkpoints of a job there are: also those of drivers before this one, and none that retention has deleted."""

from __future__ import annotations

import threading
from pathlib import Path

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.digests import digest_bytes
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, FileRef, SlotState
from statefulspark.checkpoint.lineage.identity import ensure_job
from statefulspark.checkpoint.lineage.lineage import begin_attempt
from statefulspark.checkpoint.write.publish import publish
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.snapshots.checkpoint_list import CheckpointList
from statefulspark.coordinator.snapshots.pending import info_of
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

LOCATION = b"nothing of Spark's"


def _started(store: ObjectStore) -> DurableJob:
    """The next driver of the job; it keeps two checkpoints."""
    return DurableJob(
        store=store, open_store=open_store, job_id="job", name="job", max_parallelism=32, backend="memory",
        lineage=begin_attempt(store, now_ms=1, open_store=open_store), savepoint_dir=None, retained=2,
    )  # fmt: skip


def _metadata(number: int, attempt: int) -> CheckpointMetadata:
    digest = digest_bytes(LOCATION)
    location = FileRef(name="spark-location", path="spark-location", size_bytes=digest.size_bytes, checksum=digest.checksum)
    return CheckpointMetadata(
        job_id="job", job_name="job", checkpoint_id=number, kind="checkpoint", attempt=attempt, batch=number, max_parallelism=32,
        parallelism=1, created_ms=number * 1000, duration_ms=7, states=(), slots=(SlotState(slot=0, first=0, last=31, backend="memory"),), spark_location=location, watermarks={},
    )  # fmt: skip


def _take(store: ObjectStore, durable: DurableJob, number: int) -> None:
    """A checkpoint with nothing in it but Spark's location."""
    store.put(f"{paths.checkpoint_folder(number)}/spark-location", LOCATION)
    metadata = _metadata(number, durable.attempt)
    path = publish(store, metadata, None)
    durable.completed_checkpoint(metadata, info_of(metadata, path, sync_ms=3, uploaded_bytes=5))


def _numbers(durable: DurableJob) -> list[int]:
    return [info.id for info in durable.completed()]


def test_a_new_driver_tells_of_the_checkpoints_that_those_before_it_have_left(tmp_path: Path) -> None:
    """At once of the one it started from, after its first look at the folder of all; then retention takes the oldest."""
    store = open_store(f"file://{tmp_path}/job")
    ensure_job(store, "job", 32)
    first = _started(store)
    assert _numbers(first) == []
    for number in (1, 2):
        _take(store, first, number)
    second = _started(store)
    assert _numbers(second) == [2]
    second.clean(None, tuple)
    told = second.completed()
    assert [info.path for info in told] == [f"file://{tmp_path}/job/chk-1", f"file://{tmp_path}/job/chk-2"]
    assert [(info.batch, info.completed_ms, info.size_bytes) for info in told] == [(1, 1007, len(LOCATION)), (2, 2007, len(LOCATION))]
    _take(store, second, 3)
    assert _numbers(second) == [1, 2, 3]
    second.clean(None, tuple)
    assert _numbers(second) == [2, 3]
    assert second.completed()[-1].uploaded_bytes == 5, "what this driver knows of its own is not read off the folder"
    second.delete_checkpoints()
    assert _numbers(second) == []


class _WhileCompleted(dict[int, CheckpointMetadata]):
    """What is in the folder. While it is read, another thread completes a checkpoint, or waits to."""

    def __init__(self, listed: CheckpointList) -> None:
        super().__init__({1: _metadata(1, 1)})
        later = info_of(_metadata(2, 1), "file:///job/chk-2", sync_ms=0, uploaded_bytes=0)
        self.other = threading.Thread(target=listed.add, args=(later,))

    def __getitem__(self, number: int) -> CheckpointMetadata:
        self.other.start()
        self.other.join(0.05)
        return super().__getitem__(number)


def test_a_checkpoint_that_is_completed_while_retention_ends_stays_listed() -> None:
    """Publication and retention are in different threads: neither may undo the other's change."""
    listed = CheckpointList("file:///job")
    found = _WhileCompleted(listed)
    listed.retained(found)
    found.other.join()
    assert [info.id for info in listed.all()] == [1, 2]
