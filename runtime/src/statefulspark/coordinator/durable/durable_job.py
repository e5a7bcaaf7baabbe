"""A running attempt's view of the job's folder: batch records, checkpoints, restore plans, retention."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from statefulspark.checkpoint.catalog import StoredCheckpoint, checkpoint_ids, damaged_checkpoints
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.bundle import encode_bundle
from statefulspark.checkpoint.formats.digests import digest_bytes
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, FileRef, SlotState
from statefulspark.checkpoint.formats.pipeline import Pipeline
from statefulspark.checkpoint.lineage.going_back import gone_back
from statefulspark.checkpoint.lineage.lineage import Lineage, resolve_left, write_jump
from statefulspark.checkpoint.restore.plan_message import SlotRestore
from statefulspark.checkpoint.restore.slot import RestorePlan
from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.state_packs import references_to, store_in_savepoint
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.checkpoint.write.canceled import CanceledUploads
from statefulspark.checkpoint.write.inline import DEFAULT_LIMITS, InlineLimits
from statefulspark.checkpoint.write.publish import publish
from statefulspark.checkpoint.write.removal import remove_state
from statefulspark.config.values.locations import is_below, storage_url
from statefulspark.coordinator.batches.changelogs import BatchChangelogs
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.batches.records import BatchRecords
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.core.life import BatchParameters
from statefulspark.coordinator.durable.damaged_base import is_changelog, refusal, run_again
from statefulspark.coordinator.durable.fence import Fence
from statefulspark.coordinator.durable.retention import JobRetention
from statefulspark.coordinator.snapshots.checkpoint_list import CheckpointList
from statefulspark.coordinator.snapshots.pending import PendingCheckpoint
from statefulspark.errors import CorruptDataError, IncompatibleFormatError, InternalError, InvalidInputError
from statefulspark.keygroups import key_group_range
from statefulspark.storage.base import ObjectStore

_LOCATION_FILE = "spark-location"


class DurableJob:
    """The job's folder as seen by one attempt."""

    def __init__(  # noqa: PLR0913  the attempt, and one argument per field of the manifest
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
        savepoint_places: Iterable[str] | None = None,
        retained: int,
        max_age_s: float | None = None,
        incremental: bool = True,
        inline_limits: InlineLimits = DEFAULT_LIMITS,
        at_least_once: bool = False,
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
            savepoint_places: URLs below which callers may have savepoints beside the job's own directories; None for anywhere.
            retained: how many checkpoints are kept.
            max_age_s: seconds for which a checkpoint is kept that is not the newest one; None for no limit.
            incremental: whether a snapshot may name or copy the files of an earlier checkpoint.
            inline_limits: what bounds the state that slots send for ``_metadata``.
            at_least_once: whether batches run without changelogs.
        """
        if lineage.claim is None:
            raise InternalError(f"attempt {lineage.attempt} was not begun by this driver")
        self.store = store
        self.job_id = job_id
        self._claim = lineage.claim
        self.fence = Fence(store, lineage.claim)
        self.open_store = open_store
        self._name = name
        self.max_parallelism = max_parallelism
        self._backend = backend
        self._lineage = lineage
        self._base: StoredCheckpoint | None = lineage.base
        self.restored_from = lineage.copied_from or (lineage.base.url if lineage.base is not None else None)
        self.incremental = incremental
        self.inline_limits = inline_limits
        self.at_least_once = at_least_once
        self._reusable = True
        self._failed: set[str] = set()
        """Checkpoints that slots could not restore in this attempt."""
        self._savepoint_dir = savepoint_dir
        own = [url for url in (savepoint_dir, paths.folder_of(store.url)[0]) if url is not None]
        self._savepoint_places = None if savepoint_places is None else (*own, *savepoint_places)
        self.pipeline: Pipeline | None = None
        """Keyed steps and sources of the job's query; stored with every batch and checkpoint."""
        self.changelogs = BatchChangelogs(store, lineage, max_parallelism)
        self._records = BatchRecords(store, lineage, self.fence.check, self.changelogs)
        self._completed = CheckpointList(store.url)
        self._retention = JobRetention(
            store, lineage, self.fence, self._completed, retained=retained, max_age_s=max_age_s, open_store=open_store
        )
        self._publishing = threading.Lock()
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
    def base(self) -> StoredCheckpoint | None:
        """The checkpoint that slots restore before changelogs; None for empty state."""
        return self._base

    @property
    def base_url(self) -> str | None:
        """Its URL."""
        return self._base.url if self._base is not None else None

    @property
    def reusable_checkpoint_id(self) -> int | None:
        """The checkpoint whose files the next snapshot may name or copy; None for a full one, and after damage was found, because it may be in any of them."""
        return self.base_checkpoint_id if self.incremental and self._reusable else None

    def capture_state(self, state: SparkStateUploader, batch: int) -> None:
        """Make Spark's own state after the committed ``batch`` durable.

        Raises:
            UnavailableError: storage does not answer.
        """
        state.capture(self.store, self.attempt, batch)

    def write_record(self, parameters: BatchParameters, location: LocationFiles, state: SparkStateUploader, log: BatchLog) -> None:
        """Make the record of a new batch durable; when that failed before, the same record is tried again.

        Raises:
            FencedError: a newer attempt runs the job.
            UnavailableError: storage does not answer; the batch has not begun.
        """
        self._records.write(parameters, self.pipeline, location, state, log)

    def wants_changelogs(self, *, after: int) -> bool:
        """True if a batch that follows the committed batch ``after`` has changelogs. The first one always has: there is nothing before it to go back to."""
        return not self.at_least_once or after < 0

    def go_back(self, used: int, now_ms: int) -> Lineage:
        """Return the last state that is stored, from which the job continues under numbers above ``used`` and above all that are stored.

        Raises:
            CorruptDataError: there is none that can be restored.
            FencedError: a newer attempt runs the job.
            UnavailableError: storage does not answer; call again.
        """
        with self._retention.held():
            self.fence.check()
            found = resolve_left(self.store, open_store=self.open_store, marked=damaged_checkpoints(self.store), failed=self._failed)
            back = gone_back(found, attempt=self.attempt, now_ms=now_ms, used=used, abandon_last=True)
            back = write_jump(self.store, back, self.fence.check)
            self._lineage = lineage = replace(back, attempt=self.attempt, claim=self._claim, since=self._lineage.since)
            self._base = lineage.base
        self._records.go_back(lineage)
        self.changelogs.go_back(lineage)
        return lineage

    def restore_plan(self, slot: int, parallelism: int, log: BatchLog) -> SlotRestore:
        """The restore plan of a slot; of inline entries, those of the old slots with its key groups."""
        base, key_groups = self._base, key_group_range(slot, parallelism, self.max_parallelism)
        plan = RestorePlan(
            store=self.store,
            base=replace(base, metadata=base.metadata.with_inline_of(key_groups)) if base is not None else None,
            changelogs=tuple(log.changelogs),
            batch=log.committed,
            key_groups=key_groups,
            max_parallelism=self.max_parallelism,
            backend=self._backend,
        )
        return SlotRestore.of(plan)

    def next_checkpoint_id(self) -> int:
        """A number no checkpoint of this folder has."""
        self._last_id += 1
        return self._last_id

    @property
    def has_savepoint_dir(self) -> bool:
        """True if the manifest names a folder for savepoints."""
        return self._savepoint_dir is not None

    def savepoint_target(self, target: str | None) -> str:
        """URL below which a savepoint goes.

        Raises:
            InvalidInputError: neither the caller nor the manifest names one, or the caller's is no location, or one that is not allowed.
        """
        if target is not None:
            # Here and not in a slot: one that every slot would refuse, again and again, blocks all snapshots until the time limit.
            target = storage_url(target, field="target")
            if self._savepoint_places is not None and not is_below(target, self._savepoint_places):
                raise InvalidInputError(
                    "is not among the locations that this job may use",
                    field="target",
                    remedy="Use the job's savepointDir, or a location of the operator's storageLocations",
                )
        where = target if target is not None else self._savepoint_dir
        if where is None:
            raise InvalidInputError(
                "no savepoint directory is configured", field="target", remedy="Give a target URL, or set spec.checkpointing.savepointDir"
            )
        return where.rstrip("/")

    def savepoint_folder(self) -> str:
        """Name of a new savepoint's folder."""
        return paths.savepoint_folder(self.job_id)

    def publish(
        self, progress: PendingCheckpoint, slots: tuple[SlotState, ...], states: list[dict[str, Any]]
    ) -> tuple[CheckpointMetadata, str]:
        """Write the bundle of Spark's location and ``_metadata``: the checkpoint exists when this returns. What another process converts gets no ``_metadata``.

        Returns:
            The metadata and the URL of the checkpoint's folder.
        """
        with self._publishing:
            return self._publish(progress, slots, states)

    def _publish(
        self, progress: PendingCheckpoint, slots: tuple[SlotState, ...], states: list[dict[str, Any]]
    ) -> tuple[CheckpointMetadata, str]:
        self.fence.check()
        store = self.store if progress.savepoint is None else self.open_store(progress.savepoint)
        folder = progress.savepoint_folder or paths.checkpoint_folder(progress.checkpoint_id)
        bundle = encode_bundle(progress.frame["files"])
        location = paths.bundle_name(progress.nonce)
        store.put(f"{folder}/{location}", bundle)
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
            spark_location=FileRef(name=_LOCATION_FILE, path=location, size_bytes=digest.size_bytes, checksum=digest.checksum),
            spark_state=references_to(packs, folder)
            if progress.savepoint is None
            else store_in_savepoint(packs, self.store, store, folder, self.open_store),
            watermarks=progress.frame["watermarks"],
            second_watermarks=progress.frame["second_watermarks"],
            event_times_by_value=progress.frame["event_times_by_value"],
            batch_watermarks=progress.frame["batch_watermarks"],
            processing_time_ms=progress.frame["processing_time_ms"],
            pipeline=self.pipeline,
            operator_state=tuple(progress.operator_state[slot] for slot in sorted(progress.operator_state)),
        )
        if progress.unpublished:
            return metadata, paths.folder_url(store.url, folder)
        return metadata, publish(store, metadata, progress.savepoint_folder, before_write=progress.seal)

    def uploads_of(self, progress: PendingCheckpoint) -> CanceledUploads:
        """Name what a checkpoint or savepoint that was canceled has uploaded."""
        target = progress.savepoint
        return CanceledUploads(
            open_store=lambda: self.store if target is None else self.open_store(target),
            checkpoint_id=progress.checkpoint_id,
            nonce=progress.nonce,
            savepoint_folder=progress.savepoint_folder,
        )

    def withdraw(self, metadata: CheckpointMetadata, path: str) -> None:
        """Let nobody rely on a checkpoint or savepoint that was published too late: its files may have been deleted as left behind.

        A checkpoint is marked as damaged and not deleted, because another driver may have begun to restore it meanwhile.

        Raises:
            FencedError: a newer attempt runs the job; it decides about the checkpoint.
            UnavailableError: storage does not answer.
        """
        root, folder = paths.folder_of(path)
        if metadata.kind == "savepoint":
            self.open_store(root).delete([paths.metadata_key(folder)])
            return
        self.fence.check()
        self.store.put(paths.damaged_key(folder), b"published too late")

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
        self._retention.run(lambda: self.base_checkpoint_id, in_flight=in_flight, packs_in_use=packs_in_use)

    @property
    def retention_due(self) -> bool:
        """True if a checkpoint may exceed the maximum age, so that `clean` is due although no checkpoint was completed."""
        return self._retention.is_due()

    def fall_back(self, error: CorruptDataError, log: BatchLog) -> None:
        """Slots could not restore the base: mark it as damaged and resume from the checkpoint before it and the batches since.

        Retention keeps the records and changelogs since the oldest retained checkpoint for this.

        Raises:
            CorruptDataError: there is nothing to resume from, or it is no file of the checkpoint; the text says what to do.
            IncompatibleFormatError: a newer release wrote the file; nothing was marked.
            FencedError: a newer attempt runs the job.
            UnavailableError: storage does not answer.
        """
        base = self._base
        if isinstance(error, IncompatibleFormatError):
            raise error  # the release is too old for the file, which is sound
        if base is None or is_changelog(error):
            raise refusal(error, base, self.open_store)
        with self._retention.held():
            self._fall_back(error, base, log)

    def _fall_back(self, error: CorruptDataError, base: StoredCheckpoint, log: BatchLog) -> None:
        self.fence.check()  # a newer attempt may stand on this checkpoint
        self._failed.add(base.url)
        if self.base_checkpoint_id is not None:
            self.store.put(paths.damaged_key(base.folder), str(error).encode())
        try:
            found = resolve_left(self.store, open_store=self.open_store, marked=damaged_checkpoints(self.store), failed=self._failed)
        except CorruptDataError:
            raise refusal(error, base, self.open_store) from error
        if found.base is not None and found.base.url == base.url:
            raise refusal(error, base, self.open_store)
        lacking = [record.batch for record in found.records if record.without_changelogs and record.batch <= log.committed]
        changelogs = list(found.changelogs)
        last = found.uncommitted_batch
        if not lacking and last is not None and last <= log.committed and not any(ref.batch == last for ref in log.changelogs):
            # The damaged checkpoint alone proves that this batch was committed; no record names its changelogs.
            if (done := self.changelogs.complete(last)) is None:
                raise refusal(error, base, self.open_store) from error
            changelogs += done.refs
        log.fall_back(found.base.metadata.batch if found.base is not None else -1, changelogs, lacking)
        self._base = found.base
        self._reusable = False
        if self.restored_from == base.url:
            self.restored_from = found.base.url if found.base is not None else None

    def mark_damaged(self, error: CorruptDataError) -> CorruptDataError:
        """Note that the base checkpoint cannot be restored; the next attempt passes it over.

        Returns:
            The error with what to do about it.

        Raises:
            FencedError: a newer attempt runs the job; it may stand on this checkpoint.
        """
        base = self._base
        if base is None or self.base_checkpoint_id is None or isinstance(error, IncompatibleFormatError):
            return error
        self.fence.check()
        self.store.put(paths.damaged_key(base.folder), str(error).encode())
        return run_again(error, base, checkpoint_ids(self.store))

    def delete_checkpoints(self) -> None:
        """Delete the state of the cancelled job; savepoints stay, they belong to who asked for them.

        Raises:
            FencedError: a newer attempt runs the job; nothing was deleted.
            UnavailableError: storage does not answer.
        """
        with self._publishing:  # what is published before is deleted too, and what comes later is fenced
            remove_state(self.store, self._claim, now_ms=int(time.time() * 1000))
        self._completed.drop_checkpoints()
