"""What a running attempt writes to and reads from the job's folder: batch records, checkpoints, restore plans, retention."""

from __future__ import annotations

import base64
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import cloudpickle

from statefulspark import failpoints
from statefulspark.checkpoint import paths
from statefulspark.checkpoint.bundle import decode_bundle, encode_bundle
from statefulspark.checkpoint.catalog import StoredCheckpoint, checkpoint_before, checkpoint_ids, damaged_checkpoints
from statefulspark.checkpoint.changelog import read_changelog
from statefulspark.checkpoint.digests import digest_bytes, digest_file
from statefulspark.checkpoint.lineage import Lineage, is_fenced, resolve, write_record
from statefulspark.checkpoint.location import LocationFiles
from statefulspark.checkpoint.metadata import CheckpointMetadata, FileRef, SlotState
from statefulspark.checkpoint.publish import publish
from statefulspark.checkpoint.records import BatchRecord, ChangelogRef
from statefulspark.checkpoint.restore import RestorePlan
from statefulspark.checkpoint.retention import Retention
from statefulspark.checkpoint.state_mirror import StateMirror
from statefulspark.checkpoint.state_packs import references_to, store_in_savepoint
from statefulspark.errors import CorruptDataError, FencedError, InvalidInputError
from statefulspark.job.batches import BatchLog, BatchParameters
from statefulspark.job.checkpoints import InProgress
from statefulspark.job.completed import Completed
from statefulspark.job.controls import CheckpointInfo
from statefulspark.keygroups import key_group_range
from statefulspark.storage.base import ObjectStore

_LOCATION_FILE = "spark-location"


class DurableJob:
    """The job's folder as seen by one attempt."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        open_store: Callable[[str], ObjectStore],
        job_id: str,
        name: str,
        max_parallelism: int,
        backend: str,
        lineage: Lineage,
        savepoint_dir: str | None,
        retained: int,
    ) -> None:
        """Take over a claimed attempt.

        Args:
            store: opened at the job's folder.
            open_store: opens the store of any URL, with the job's credentials.
            job_id: name of the folder.
            name: the job's name.
            max_parallelism: number of key groups.
            backend: kind of the slots' stores.
            lineage: what the attempt starts from.
            savepoint_dir: where savepoints go when the caller names no place.
            retained: how many checkpoints are kept.
        """
        self.store = store
        self.job_id = job_id
        self.fenced = False
        self._open_store = open_store
        self._name = name
        self.max_parallelism = max_parallelism
        self._backend = backend
        self._lineage = lineage
        self._base: StoredCheckpoint | None = lineage.base
        self.restored_from = lineage.base.url if lineage.base is not None else None
        self._reusable = True
        self._savepoint_dir = savepoint_dir
        self._retention = Retention(store, retained=retained)
        self._pending: BatchRecord | None = None
        self._completed = Completed(store.url)
        self._cleaning = threading.Lock()
        taken = checkpoint_ids(store)
        if lineage.base is not None:
            taken.append(lineage.base.metadata.checkpoint_id)
            if self.base_checkpoint_id is not None:
                self._completed.retained({self.base_checkpoint_id: lineage.base.metadata})
        self._last_id = max(taken, default=0)

    @property
    def attempt(self) -> int:
        """Number of this driver start."""
        return self._lineage.attempt

    @property
    def base_checkpoint_id(self) -> int | None:
        """The newest checkpoint of this folder that slots may refer to; None when there is none."""
        base = self._base
        if base is None or not paths.same_folder(base.store.url, self.store.url):
            return None
        return base.metadata.checkpoint_id

    @property
    def base_url(self) -> str | None:
        """What slots restore, before changelogs; None for empty state."""
        return self._base.url if self._base is not None else None

    @property
    def reusable_checkpoint_id(self) -> int | None:
        """The checkpoint whose files the next one may name; none after damage was found, because it may be in any of them."""
        return self.base_checkpoint_id if self._reusable else None

    def check_fence(self) -> None:
        """Look whether a newer attempt was claimed.

        Raises:
            FencedError: It was.
            UnavailableError: storage does not answer.
        """
        if is_fenced(self.store, self.attempt):
            self.fenced = True
            raise FencedError("a newer attempt runs the job; this one has stopped")

    def capture_state(self, state: StateMirror, batch: int) -> None:
        """Make Spark's own state after the committed ``batch`` durable.

        Raises:
            UnavailableError: storage does not answer.
        """
        state.capture(self.store, self.attempt, batch)

    def write_record(
        self, parameters: BatchParameters, location: LocationFiles, state: StateMirror, log: BatchLog, epochs: list[int]
    ) -> None:
        """Make the record of a new batch durable; when that failed before, the same record is tried again.

        Raises:
            FencedError: a newer attempt runs the job.
            UnavailableError: storage does not answer; the batch has not begun.
        """
        record = self._pending
        if record is None or record.batch != parameters.batch:
            self.capture_state(state, parameters.batch - 1)
            failpoints.reach("driver.state.stored")
            files, packs = location.new_files(), state.record()
            record = self._recovered_record(parameters.batch, files, epochs) or self._new_record(parameters, files, log, epochs)
            self._pending = record = record.model_copy(update={"spark_state": (*record.spark_state, *packs)})
        try:
            write_record(self.store, record)
        except FencedError:
            self.fenced = True
            raise
        self._pending = None
        location.confirm()
        state.confirm()

    def _new_record(self, parameters: BatchParameters, files: dict[str, bytes], log: BatchLog, epochs: list[int]) -> BatchRecord:
        acks = [ChangelogRef(**ack["changelog"]) for ack in log.acknowledgements.values() if ack["changelog"] is not None]
        if log.current is None and log.committed >= 0:
            # An attempt that went on from a checkpoint alone saw nobody acknowledge its batch. Should the checkpoint turn out to be
            # damaged, the one before it needs these changelogs.
            acks = [ChangelogRef(**ref) for ref, _ in self.find_changelogs(log.committed)]
        return BatchRecord(
            attempt=self.attempt,
            batch=parameters.batch,
            previous=log.committed,
            processing_time_ms=parameters.processing_time_ms,
            watermarks=dict(parameters.watermarks),
            max_event_times=dict(log.max_event_times),
            epochs=tuple(epochs),
            acks=tuple(acks),
            files=encode_bundle(files),
        )

    def _recovered_record(self, batch: int, files: dict[str, bytes], epochs: list[int]) -> BatchRecord | None:
        """The record of the batch that runs again; None when it is another batch.

        It takes the place of the earlier attempt's in the lineage of the next attempt, so it must say all that that one says:
        the changelogs of the batch before, of which this attempt has seen no acknowledgement, and Spark's plan of the batch.
        """
        earlier = self._lineage.records[-1] if self._lineage.records else None
        if earlier is None or earlier.batch != batch:
            return None
        known = decode_bundle(earlier.files, path=f"batch record {batch}")
        return earlier.model_copy(update={"attempt": self.attempt, "epochs": tuple(epochs), "files": encode_bundle(known | files)})

    def find_changelogs(self, batch: int) -> list[tuple[dict[str, Any], int | None]]:
        """Every changelog that attempts of this lineage made durable for ``batch``, with its greatest event time.

        They are taken over into this attempt's folder. Several of one slot have the same content, because rows, watermark and
        processing time of a batch are the same each time it runs. Any of the attempts may be the one whose sink committed: also one
        that was fenced long ago, was cut off, and did not know it.
        """
        prefixes = [paths.changelog_prefix(attempt, batch) for attempt in range(self._lineage.since, self.attempt + 1)]
        keys = [info.key for prefix in prefixes for info in self.store.list(prefix)]
        return [self._take_over(key) for key in keys]

    def _take_over(self, key: str) -> tuple[dict[str, Any], int | None]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "changelog"
            self.store.get_file(key, path)
            header, changes = read_changelog(path)
            deque(changes, maxlen=0)  # proves that the file is whole
            digest = digest_file(path)
            own = key
            if not key.startswith(paths.changelog_prefix(self.attempt, header.batch)):
                own = paths.changelog_key(self.attempt, header.batch, header.uid, header.slot, header.epoch)
                self.store.put_file(own, path)
        ref = ChangelogRef(
            uid=header.uid,
            slot=header.slot,
            first=header.first_key_group,
            last=header.last_key_group,
            batch=header.batch,
            epoch=header.epoch,
            key=own,
            size_bytes=digest.size_bytes,
            checksum=digest.checksum,
        )
        return ref.model_dump(mode="json"), header.max_event_time_ms

    def restore_plan(self, slot: int, parallelism: int, log: BatchLog) -> str:
        """What a slot restores: a pickled RestorePlan in base64. It travels over the job's authenticated connection only."""
        plan = RestorePlan(
            store=self.store,
            base=self._base,
            changelogs=tuple(ChangelogRef(**ref) for ref in log.changelogs),
            batch=log.committed,
            key_groups=key_group_range(slot, parallelism, self.max_parallelism),
            max_parallelism=self.max_parallelism,
            backend=self._backend,
        )
        return base64.b64encode(cloudpickle.dumps(plan)).decode()

    def next_checkpoint_id(self) -> int:
        """A number no checkpoint of this folder has."""
        self._last_id += 1
        return self._last_id

    def savepoint_target(self, target: str | None) -> str:
        """URL below which a savepoint goes.

        Raises:
            InvalidInputError: neither the caller nor the manifest names one.
        """
        where = target or self._savepoint_dir
        if where is None:
            raise InvalidInputError(
                "no place for savepoints is configured", field="target", remedy="Give a target URL, or set spec.checkpointing.savepointDir"
            )
        return where.rstrip("/")

    def savepoint_folder(self) -> str:
        """Name of a new savepoint's folder."""
        return paths.savepoint_folder(self.job_id)

    def publish(self, progress: InProgress, slots: tuple[SlotState, ...], states: list[dict[str, Any]]) -> tuple[CheckpointMetadata, str]:
        """Write the bundle of Spark's location and ``_metadata``; the checkpoint exists when this returns.

        Returns:
            The metadata and the URL of the checkpoint's folder.
        """
        self.check_fence()
        store = self.store if progress.savepoint is None else self._open_store(progress.savepoint)
        folder = progress.savepoint_folder or paths.checkpoint_folder(progress.checkpoint_id)
        bundle = encode_bundle(progress.frame["files"])
        store.put(f"{folder}/{_LOCATION_FILE}", bundle)
        digest = digest_bytes(bundle)
        packs = progress.frame["spark_state"]
        metadata = CheckpointMetadata(
            job_id=self.job_id,
            job_name=self._name,
            checkpoint_id=progress.checkpoint_id,
            kind="checkpoint" if progress.savepoint is None else "savepoint",
            attempt=self.attempt,
            batch=progress.batch,
            max_parallelism=self.max_parallelism,
            parallelism=progress.frame["parallelism"],
            created_ms=progress.created_ms,
            duration_ms=int((time.monotonic() - progress.started_s) * 1000),
            states=tuple(states),
            slots=slots,
            spark_location=FileRef(name=_LOCATION_FILE, path=_LOCATION_FILE, size_bytes=digest.size_bytes, checksum=digest.checksum),
            spark_state=references_to(packs, folder)
            if progress.savepoint is None
            else store_in_savepoint(packs, self.store, store, folder, self._open_store),
            watermarks=progress.frame["watermarks"],
        )
        return metadata, publish(store, metadata, progress.savepoint_folder)

    def completed_checkpoint(self, metadata: CheckpointMetadata, info: CheckpointInfo) -> None:
        """A checkpoint or savepoint is complete; a checkpoint becomes what slots restore from."""
        self._completed.add(info)
        if metadata.kind == "checkpoint":
            self._base = StoredCheckpoint(self.store, paths.checkpoint_folder(metadata.checkpoint_id), metadata)
            self._reusable = True

    def completed(self) -> list[CheckpointInfo]:
        """Checkpoints that still exist and savepoints taken by this driver, oldest first."""
        return self._completed.all()

    def clean(self, in_flight: int | None, packs_in_use: Callable[[], Collection[str]]) -> None:
        """Delete what neither a retained checkpoint nor this attempt's lineage needs.

        Args:
            in_flight: number of the checkpoint that is being taken meanwhile.
            packs_in_use: asked for the keys of the packs of Spark's state that are needed beside those that checkpoints name.
        """
        if not self._cleaning.acquire(blocking=False):
            return
        try:
            self.check_fence()
            base = self.base_checkpoint_id
            self._retention.run(
                self._lineage,
                now_s=time.time(),
                in_flight=() if in_flight is None else (in_flight,),
                pins=() if base is None else (base,),
                packs_in_use=packs_in_use,
            )
            self._completed.retained(self._retention.retained)
        except FencedError:
            return  # what is here belongs to the newer attempt; batches and the idle watch report it
        finally:
            self._cleaning.release()

    def fall_back(self, error: CorruptDataError, log: BatchLog) -> None:
        """Slots could not restore the base: mark it as damaged and go on from the checkpoint before it and the batches since.

        Retention keeps the records and changelogs since the oldest retained checkpoint for this.

        Raises:
            CorruptDataError: there is nothing to go on from, or it is no file of the checkpoint; the text says what to do.
            FencedError: a newer attempt runs the job.
            UnavailableError: storage does not answer.
        """
        base = self._base
        if base is None or _is_changelog(error):
            raise self._refusal(error, base)
        if self.base_checkpoint_id is not None:
            self.store.put(paths.damaged_key(base.folder), str(error).encode())
        self.check_fence()
        try:
            found = resolve(self.store, open_store=self._open_store, damaged=damaged_checkpoints(self.store))
        except CorruptDataError:
            raise self._refusal(error, base) from error
        if found.base is not None and found.base.url == base.url:
            raise self._refusal(error, base)
        changelogs = [ref.model_dump(mode="json") for ref in found.changelogs]
        last = found.uncommitted_batch
        if last is not None and last <= log.committed and not any(ref["batch"] == last for ref in log.changelogs):
            # The damaged checkpoint alone proves that this batch was committed; no record names its changelogs.
            changelogs += [ref for ref, _ in self.find_changelogs(last)]
        log.fall_back(found.base.metadata.batch if found.base is not None else -1, changelogs)
        self._base = found.base
        self._reusable = False
        if self.restored_from == base.url:
            self.restored_from = found.base.url if found.base is not None else None

    def _refusal(self, error: CorruptDataError, base: StoredCheckpoint | None) -> CorruptDataError:
        if base is None:
            return error
        if _is_changelog(error):
            remedy = f"Go back to the checkpoint before that batch with --from {base.url}; the rows after it are processed again"
        elif (before := checkpoint_before(base.url, self._open_store)) is not None:
            remedy = f"The checkpoint before it is there: start with --from {before}"
        else:
            remedy = "No older checkpoint is retained: start from a savepoint with --from PATH"
        return CorruptDataError(f"{base.url} cannot be restored: {error}. {remedy}", path=error.path)

    def mark_damaged(self, error: CorruptDataError) -> CorruptDataError:
        """Note that the base checkpoint cannot be restored; the next attempt passes it over.

        Returns:
            The error with what to do about it.
        """
        base = self._base
        if base is None or self.base_checkpoint_id is None:
            return error
        self.store.put(paths.damaged_key(base.folder), str(error).encode())
        others = [number for number in checkpoint_ids(self.store) if number < base.metadata.checkpoint_id]
        remedy = (
            f"Run the job again: it goes on from checkpoint {max(others)} and the batches since, without losing any"
            if others
            else "No older checkpoint is retained: start from a savepoint with --from PATH"
        )
        return CorruptDataError(f"{base.url} cannot be restored: {error}. {remedy}", path=error.path)

    def delete_checkpoints(self) -> None:
        """Delete all of the job's folder except its identity; savepoints stay, they belong to who asked for them."""
        infos = self.store.list("")
        self.store.delete(info.key for info in infos if info.key != paths.JOB_KEY and not info.key.startswith("savepoint-"))
        self._completed.drop_checkpoints()


def _is_changelog(error: CorruptDataError) -> bool:
    return f"/{paths.CHANGELOG_PREFIX}" in f"/{error.path}"
