"""Checks, before an attempt is claimed, whether the job fits the state that it would resume from.

The claim fences a driver that may still be running, so a job that does not fit is rejected first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from statefulspark.checkpoint.catalog import (
    StoredCheckpoint,
    check_location,
    check_presence,
    checkpoint_before,
    damaged_checkpoints,
    open_checkpoint,
    stored_sizes,
)
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import decode_document
from statefulspark.checkpoint.formats.pipeline import Pipeline
from statefulspark.checkpoint.formats.records import JobIdentity
from statefulspark.checkpoint.lineage.going_back import gone_back
from statefulspark.checkpoint.lineage.lineage import Lineage, resolve_left
from statefulspark.checkpoint.lineage.rewind import check_jump, last_used_batch
from statefulspark.checkpoint.spark.stored_location import location_files
from statefulspark.checkpoint.write.claiming import check_claimable
from statefulspark.config.checkpointing import CheckpointingMode
from statefulspark.config.job import StatefulSparkJob
from statefulspark.coordinator.batches.changelogs import BatchChangelogs
from statefulspark.errors import CorruptDataError, InvalidInputError, NotRestorableError
from statefulspark.storage.base import ObjectStore

_log = structlog.get_logger("statefulspark.start")


@dataclass(frozen=True, slots=True)
class RestorableState:
    """The state that the next attempt would resume from."""

    max_parallelism: int | None
    uids: frozenset[str]
    url: str
    batch: int = -1
    """Last batch in the checkpoint."""
    last_begun: int = -1
    """Last batch that a driver of the job has begun; -1 for none."""
    continued: bool = True
    """False when the state was taken from a checkpoint on purpose, so that the sink may not know the batches before."""
    origin: StoredCheckpoint | None = None
    """The checkpoint or savepoint that was named."""
    spark_state: bool | None = None
    """True if Spark's own stateful steps have left state; None before the first committed batch."""
    pipeline: Pipeline | None = None
    """The one that wrote the newest batch or checkpoint; None if there is none, or it was written before pipelines were stored."""
    location: Mapping[str, bytes] = field(default_factory=dict)
    """Files of Spark's checkpoint location."""

    @property
    def is_empty(self) -> bool:
        """True if the job begins with batch 0, which no attempt has begun."""
        return self.origin is None and self.batch < 0 and not self.location


def restorable_state(
    store: ObjectStore, origin: str | None, opened: Callable[[str], ObjectStore], *, claims: bool = False
) -> RestorableState:
    """Determine the state that the next attempt would resume from.

    Args:
        store: opened at the job folder.
        origin: URL of a checkpoint or savepoint to start from instead.
        opened: opens the store of a URL.
        claims: whether the job is going to claim the origin.

    Raises:
        InvalidInputError: the job cannot claim the origin.
        CorruptDataError: nothing that is left can be restored.
        UnavailableError: storage does not answer.
    """
    base: StoredCheckpoint | None
    uids: set[str] = set()
    packs = False
    if origin is not None:
        base = _open_whole(origin, opened)
        if claims:
            check_claimable(base, store.url)
        lineage = Lineage(attempt=0, base=base, records=(), record_keys=(), checkpoints=())
        continued, batch = False, base.metadata.batch
    else:
        lineage = gone_back(resolve_left(store, open_store=opened, marked=damaged_checkpoints(store)))
        base = lineage.base
        continued, batch = lineage.origin is None, lineage.committed_batch
        uids |= {ref.uid for ref in lineage.changelogs} | _uncommitted_uids(store, lineage)
        packs = any(record.spark_state for record in lineage.records)
    committed = lineage.last_committed_in_spark
    last_begun = committed if lineage.uncommitted_batch is None else max(committed, lineage.uncommitted_batch)
    max_parallelism, url = None, store.url
    if base is not None:
        uids |= {str(info["uid"]) for info in base.metadata.states}
        packs = packs or bool(base.metadata.spark_state)
        max_parallelism, url, batch = base.metadata.max_parallelism, base.url, base.metadata.batch
    location, _ = location_files(lineage)
    return RestorableState(
        max_parallelism=max_parallelism,
        uids=frozenset(uids),
        url=url,
        batch=batch,
        last_begun=last_begun,
        continued=continued,
        origin=base if origin is not None else None,
        spark_state=packs if batch >= 0 else None,
        pipeline=lineage.pipeline,
        location=location,
    )


def _uncommitted_uids(store: ObjectStore, lineage: Lineage) -> set[str]:
    """Uids whose state the batch that runs again has changed, if an attempt has processed it completely.

    The sink may have the results of that attempt. Then its changelogs are adopted, and the rows of the batch never reach another step.
    """
    batch = lineage.uncommitted_batch
    if batch is None:
        return set()
    found = BatchChangelogs(store, lineage, _key_groups(store, lineage)).complete(batch)
    return {ref.uid for ref in found.refs} if found is not None else set()


def _key_groups(store: ObjectStore, lineage: Lineage) -> int:
    if lineage.base is not None:
        return lineage.base.metadata.max_parallelism
    path = paths.url_of(store.url, paths.JOB_KEY)
    try:
        return decode_document(store.get(paths.JOB_KEY), "job", JobIdentity, path=path).max_parallelism
    except KeyError:
        raise CorruptDataError("the identity of the job is missing, although it has batches", path=path) from None


def _open_whole(url: str, opened: Callable[[str], ObjectStore]) -> StoredCheckpoint:
    """Open a checkpoint that was named on purpose; what can be seen of damage without reading all of it is refused here."""
    try:
        checkpoint = open_checkpoint(url, opened)
        check_presence(checkpoint.metadata, checkpoint.key, stored_sizes(checkpoint.store, checkpoint.folder))
        check_location(checkpoint)
    except CorruptDataError as damage:
        earlier = checkpoint_before(url, opened)
        offer = f"An earlier checkpoint is available: --from {earlier}" if earlier is not None else "Name another checkpoint or savepoint"
        raise CorruptDataError(f"{url} cannot be restored: {damage}. {offer}", path=damage.path) from damage
    return checkpoint


def check_way_back(store: ObjectStore, restorable: RestorableState, steps: tuple[str, ...], sink_batch: int) -> None:
    """Raise if a job that starts from a given checkpoint cannot use batch numbers above all that its sink may have committed.

    Args:
        store: opened at the job folder.
        restorable: the state that is there.
        steps: Spark's own stateful steps of the pipeline.
        sink_batch: the last batch that the sink is known to have.

    Raises:
        NotRestorableError: names the reason and what to do.
        UnavailableError: storage does not answer.
    """
    if restorable.origin is None:
        return
    last = max(last_used_batch(store), sink_batch)
    check_jump(restorable.origin, last, spark_state=bool(steps))
    if last > restorable.batch:
        _log.warning(
            "restoring an earlier checkpoint: rows after it are processed again under new batch numbers; output of later "
            "batches stays in the sink",
            restored_batch=restorable.batch,
            last_batch=last,
        )


def warn_of_restored_ids(store: ObjectStore, restorable: RestorableState) -> None:
    """Warn if a job starts from a checkpoint in a directory of its own: its sink may know the batch ids from another job.

    Args:
        store: opened at the job folder.
        restorable: the state that is there.
    """
    if last_used_batch(store) < 0 <= restorable.batch:
        _log.warning(
            "this job has a directory of its own, so its batch ids continue from the snapshot's, and another job may have used the same ids since. A sink "
            "that skips known batch ids drops their output: let it keep them together with job.id, or write to a new place. See docs/sinks.md",
            first_batch=restorable.batch + 1,
        )


def check_mode(mode: CheckpointingMode, steps: tuple[str, ...], deleting: tuple[str, ...]) -> None:
    """Raise if a job with ``at-least-once`` could not go back to its last checkpoint after a failure.

    Spark keys the state of its own stateful operators by batch number, and a source that deletes what Spark has committed cannot read it again.

    Args:
        mode: the manifest's ``checkpointing.mode``.
        steps: Spark's own stateful steps of the pipeline.
        deleting: sources of the pipeline that delete or move what they have read.

    Raises:
        InvalidInputError: it could not.
    """
    if mode is not CheckpointingMode.AT_LEAST_ONCE:
        return
    if steps:
        raise InvalidInputError(
            f"at-least-once continues under new batch numbers after a failure, but the pipeline has a streaming {steps[0]}, and Spark keys the state "
            "of its own operators by batch number",
            field="spec.checkpointing.mode",
            remedy="Set mode: exactly-once, or do the work in a keyed step",
        )
    if deleting:
        raise InvalidInputError(
            f"at-least-once reads rows since the last checkpoint again after a failure, but the source {deleting[0]} has cleanSource set: Spark "
            "deletes or moves files that it has read",
            field="spec.checkpointing.mode",
            remedy="Set mode: exactly-once, or remove cleanSource",
        )


def check_sink_batches(restorable: RestorableState, sink_batch: int) -> None:
    """Raise if a job that continues its own state writes to a sink, of files or Kafka, that knows later batches than the job has begun.

    The sink would skip those numbers, and the output of the job's next batches would be lost.

    Args:
        restorable: the state that is there.
        sink_batch: the last batch that the sink is known to have.

    Raises:
        InvalidInputError: the sink knows later batches.
    """
    if sink_batch <= restorable.last_begun:
        if sink_batch < 0 <= restorable.last_begun:
            _log.warning(
                "the file sink has no batches, because its path is new or its folder was deleted: it gets the output from now on",
                last_batch=restorable.last_begun,
            )
        return
    if restorable.is_empty:
        raise InvalidInputError(
            f"the job has no state and begins with batch 0, but its sink has batches up to {sink_batch} and would drop the output of batches "
            "with the same numbers",
            field="spec.job",
            remedy="Write to a new path, or delete the sink's folder (Kafka: give the sink a new uid); to continue from a savepoint, use --from",
        )
    raise InvalidInputError(
        f"the job has begun batches up to {restorable.last_begun}, but its sink has batches up to {sink_batch}, which another job has written, "
        "and would drop the output of batches with the same numbers",
        field="spec.job",
        remedy="Write to a new path (Kafka: give the sink a new uid); to write to this one, start with --from the job's last checkpoint, which continues above the sink's numbers",
    )


def choose_max_parallelism(manifest: StatefulSparkJob, parallelism: int, restorable: RestorableState) -> int:
    """The number of key groups: of the state that is there, else of the manifest.

    Raises:
        NotRestorableError: the manifest asks for another one.
        InvalidInputError: there are more slots than key groups.
    """
    wanted = manifest.spec.max_parallelism
    if restorable.max_parallelism is None:
        return wanted
    if manifest.spec.max_parallelism_given and wanted != restorable.max_parallelism:
        raise NotRestorableError(
            f"the state in {restorable.url} has {restorable.max_parallelism} key groups, but the manifest sets {wanted}",
            field="spec.maxParallelism",
            remedy=f"Set it to {restorable.max_parallelism}, or write a savepoint with other key groups by `statefulspark rewrite --max-parallelism`",
        )
    if parallelism > restorable.max_parallelism:
        raise InvalidInputError(
            f"{parallelism} slots cannot share {restorable.max_parallelism} key groups",
            field="parallelism",
            remedy=f"Keep it at or below {restorable.max_parallelism}",
        )
    return restorable.max_parallelism


def check_uids(restorable: RestorableState, uids: set[str], allow_non_restored: bool) -> None:
    """Raise when a keyed step of the stored state is not in the pipeline.

    Raises:
        NotRestorableError: names the uid and what to do.
    """
    missing = sorted(restorable.uids - uids)
    if missing and not allow_non_restored:
        raise NotRestorableError(
            f"{restorable.url} contains state of uid {', '.join(map(repr, missing))}, but the pipeline has only "
            f"{', '.join(map(repr, sorted(uids)))}",
            field="uid",
            remedy="Restore the step's old uid, or set spec.allowNonRestoredState: true to discard that state",
        )


def check_spark_steps(restorable: RestorableState, steps: tuple[str, ...], allow_non_restored: bool) -> None:
    """Raise when Spark's own stateful steps came or went: Spark would fail in the first batch.

    Args:
        restorable: the state that is there.
        steps: the stateful steps of the pipeline, as users write them.
        allow_non_restored: the manifest's ``allowNonRestoredState``.

    Raises:
        NotRestorableError: names the step and what to do.
    """
    if restorable.spark_state is False and steps:
        raise NotRestorableError(
            f"{restorable.url} contains no state of Spark's own steps, but the pipeline has a streaming {steps[0]}: Spark cannot add one to a "
            "query that has run",
            field="spec.job",
            remedy="Do the work in a keyed step with a new uid, or start the job without its state under another name",
        )
    if restorable.spark_state and not steps and not allow_non_restored:
        raise NotRestorableError(
            f"{restorable.url} holds state of Spark's own stateful steps, but the pipeline has no such steps",
            field="spec.job",
            remedy="Restore the steps in the pipeline, or set spec.allowNonRestoredState: true to discard that state",
        )
