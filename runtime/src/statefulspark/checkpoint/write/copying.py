"""Copies the checkpoint or savepoint that a job starts from into the job's own folder before it starts.

The origin has another owner, who may delete it at any time: the retention of the job that took it, an earlier driver of this job
that is paused just before a deletion, or the user who requested the savepoint. So every file is copied into the
job's folder, inside the storage service if possible, and published as a checkpoint of the new attempt, before the attempt's start is written.
A crash before that leaves the lineage unchanged, and a checkpoint that is not part of any lineage.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TypeVar
from uuid import uuid4

from statefulspark.checkpoint.catalog import OpenStore, StoredCheckpoint, checkpoint_ids
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.digests import FileDigest
from statefulspark.checkpoint.formats.metadata import FileRef, SlotState
from statefulspark.checkpoint.transfers import Copier, in_parallel
from statefulspark.checkpoint.write.publish import publish
from statefulspark.checkpoint.write.upload import is_shared
from statefulspark.storage.base import ObjectStore

_THREADS = 8
_File = TypeVar("_File", bound=FileRef)


def copy_checkpoint(
    origin: StoredCheckpoint, store: ObjectStore, *, job_name: str, attempt: int, now_ms: int, open_store: OpenStore
) -> StoredCheckpoint:
    """Publish a copy of ``origin`` as a checkpoint of the job.

    Args:
        origin: Checkpoint or savepoint, of this job or another.
        store: Opened at the job folder.
        job_name: The job's name.
        attempt: The attempt that starts from it.
        now_ms: Current time, milliseconds since the epoch.
        open_store: Opens what the origin and the job folder have in common.

    Raises:
        ConflictError: A driver that had been replaced published a checkpoint of the same number; start again.
        CorruptDataError: A file of the origin is missing, or damaged as far as copying shows it.
        UnavailableError: Storage did not answer; start again.
    """
    began_s = time.monotonic()
    number = max(checkpoint_ids(store), default=0) + 1
    folder = paths.checkpoint_folder(number)
    copies = _copies(origin, number, attempt)
    copier = Copier(origin.store, store, open_store)
    in_parallel(lambda copy: copier.copy(copy.source, copy.target, copy.digest), copies.values(), _THREADS)

    def renamed(file: _File) -> _File:
        copy = copies[paths.resolve_reference(origin.key, file.path)]
        return file.model_copy(update={"path": paths.relative_reference(folder, copy.target)})

    def renamed_slot(slot: SlotState) -> SlotState:
        files = [renamed(file) for file in slot.files]
        shared = tuple(file for file in files if is_shared(file.name, slot.backend))
        return slot.model_copy(
            update={"shared": shared, "private": tuple(file for file in files if not is_shared(file.name, slot.backend))}
        )

    location = origin.metadata.spark_location
    copied = origin.metadata.model_copy(
        update={
            "job_id": paths.folder_of(store.url)[1],
            "job_name": job_name,
            "checkpoint_id": number,
            "kind": "checkpoint",
            "attempt": attempt,
            "created_ms": now_ms,
            "duration_ms": int((time.monotonic() - began_s) * 1000),
            "slots": tuple(renamed_slot(slot) for slot in origin.metadata.slots),
            "spark_location": renamed(location) if location is not None else None,
            "spark_state": tuple(renamed(pack) for pack in origin.metadata.spark_state),
            "operator_state": tuple(renamed(file) for file in origin.metadata.operator_state),
            "tables": (),  # nobody looks for them in a checkpoint, and a restore does not need them
        }
    )
    publish(store, copied)
    return StoredCheckpoint(store, folder, copied)


@dataclass(frozen=True, slots=True)
class _Copy:
    source: str
    """Key in the origin's store."""
    target: str
    """Key in the job folder."""
    digest: FileDigest


def _copies(origin: StoredCheckpoint, number: int, attempt: int) -> dict[str, _Copy]:
    """Files to copy, by source. A file that several slots reference, because the job was rescaled, is copied once."""
    folder = paths.checkpoint_folder(number)
    metadata = origin.metadata
    copies: dict[str, _Copy] = {}

    def add(file: FileRef, target: str) -> None:
        source = paths.resolve_reference(origin.key, file.path)
        copies[source] = _Copy(source, target, file.digest)

    for slot in metadata.slots:
        private = f"{folder}/slot-{slot.slot}-{uuid4().hex[:8]}"
        for file in slot.files:
            add(file, paths.shared_key(number) if is_shared(file.name, slot.backend) else f"{private}/{file.name}")
    if metadata.spark_location is not None:
        add(metadata.spark_location, f"{folder}/spark-location-{uuid4().hex[:8]}")
    for part in metadata.operator_state:
        add(part, f"{folder}/slot-{part.slot}-{uuid4().hex[:8]}/{part.name}")
    for pack in metadata.spark_state:
        add(pack, paths.spark_state_key(attempt, max(0, metadata.batch)))
    return copies
