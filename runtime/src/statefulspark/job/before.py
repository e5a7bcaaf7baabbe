"""What a job's folder, or the checkpoint that a job starts from, holds before an attempt is claimed, and whether the job fits it.

The claim fences a driver that may be running, so what does not fit is refused before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
from statefulspark.checkpoint.lineage import resolve
from statefulspark.checkpoint.rewind import check_jump, last_used_batch
from statefulspark.config.job import StatefulSparkJob
from statefulspark.errors import CorruptDataError, InvalidInputError, NotRestorableError
from statefulspark.storage.base import ObjectStore

_log = structlog.get_logger("statefulspark.start")


@dataclass(frozen=True, slots=True)
class StateBefore:
    """What is there before the attempt is claimed."""

    max_parallelism: int | None
    uids: frozenset[str]
    url: str
    batch: int = -1
    """Last batch in the checkpoint."""
    continued: bool = True
    """False when the state was taken from a checkpoint on purpose, so that the sink may not know the batches before."""
    origin: StoredCheckpoint | None = None
    """The checkpoint or savepoint that was named."""
    spark_state: bool | None = None
    """Whether Spark's own stateful steps have left state; None before the first committed batch."""


def state_before(store: ObjectStore, origin: str | None, opened: Callable[[str], ObjectStore]) -> StateBefore:
    """Look at what the next attempt would go on from.

    Args:
        store: opened at the job folder.
        origin: URL of a checkpoint or savepoint to start from instead.
        opened: opens the store of a URL.

    Raises:
        CorruptDataError: nothing that is left can be restored.
        UnavailableError: storage does not answer.
    """
    base: StoredCheckpoint | None
    uids: set[str] = set()
    packs = False
    if origin is not None:
        base = _open_whole(origin, opened)
        continued, batch = False, base.metadata.batch
    else:
        lineage = resolve(store, open_store=opened, damaged=damaged_checkpoints(store))
        base = lineage.base
        continued, batch = lineage.origin is None, lineage.committed_batch
        uids |= {ref.uid for ref in lineage.changelogs}
        packs = any(record.spark_state for record in lineage.records)
    max_parallelism, url = None, store.url
    if base is not None:
        uids |= {str(info["uid"]) for info in base.metadata.states}
        packs = packs or bool(base.metadata.spark_state)
        max_parallelism, url, batch = base.metadata.max_parallelism, base.url, base.metadata.batch
    return StateBefore(
        max_parallelism=max_parallelism,
        uids=frozenset(uids),
        url=url,
        batch=batch,
        continued=continued,
        origin=base if origin is not None else None,
        spark_state=packs if batch >= 0 else None,
    )


def _open_whole(url: str, opened: Callable[[str], ObjectStore]) -> StoredCheckpoint:
    """Open a checkpoint that was named on purpose; what can be seen of damage without reading all of it is refused here."""
    try:
        checkpoint = open_checkpoint(url, opened)
        check_presence(checkpoint.metadata, checkpoint.key, stored_sizes(checkpoint.store, checkpoint.folder))
        check_location(checkpoint)
    except CorruptDataError as damage:
        before = checkpoint_before(url, opened)
        offer = f"The checkpoint before it is there: --from {before}" if before is not None else "Name another checkpoint or savepoint"
        raise CorruptDataError(f"{url} cannot be restored: {damage}. {offer}", path=damage.path) from damage
    return checkpoint


def check_way_back(store: ObjectStore, before: StateBefore, steps: tuple[str, ...], sink_batch: int) -> None:
    """Raise when a job that starts from a named checkpoint cannot go on with numbers above all that its sink may know.

    Args:
        store: opened at the job folder.
        before: what is there.
        steps: Spark's own stateful steps of the pipeline.
        sink_batch: the last batch that the sink is known to have.

    Raises:
        NotRestorableError: names the reason and what to do.
        UnavailableError: storage does not answer.
    """
    if before.origin is None:
        return
    last = max(last_used_batch(store), sink_batch)
    check_jump(before.origin, last, spark_state=bool(steps))
    if last > before.batch:
        _log.warning(
            "the job goes back in time: rows after the checkpoint are processed again under new batch numbers; what later batches gave "
            "out stays in the sink",
            restored_batch=before.batch,
            last_batch=last,
        )


def choose_max_parallelism(manifest: StatefulSparkJob, parallelism: int, before: StateBefore) -> int:
    """The number of key groups: of the state that is there, else of the manifest.

    Raises:
        NotRestorableError: the manifest asks for another one.
        InvalidInputError: there are more slots than key groups.
    """
    wanted = manifest.spec.max_parallelism
    if before.max_parallelism is None:
        return wanted
    if manifest.spec.max_parallelism_given and wanted != before.max_parallelism:
        raise NotRestorableError(
            f"the state in {before.url} has {before.max_parallelism} key groups, the manifest asks for {wanted}",
            field="spec.maxParallelism",
            remedy=f"Set it to {before.max_parallelism}; the number of key groups is fixed for the life of a job's state",
        )
    if parallelism > before.max_parallelism:
        raise InvalidInputError(
            f"{parallelism} slots cannot share {before.max_parallelism} key groups",
            field="parallelism",
            remedy=f"Keep it at or below {before.max_parallelism}",
        )
    return before.max_parallelism


def check_uids(before: StateBefore, uids: set[str], allow_non_restored: bool) -> None:
    """Raise when a keyed step of the stored state is not in the pipeline.

    Raises:
        NotRestorableError: names the uid and what to do.
    """
    missing = sorted(before.uids - uids)
    if missing and not allow_non_restored:
        raise NotRestorableError(
            f"{before.url} holds state of uid {', '.join(map(repr, missing))}, which the pipeline does not have; it has "
            f"{', '.join(map(repr, sorted(uids)))}",
            field="uid",
            remedy="Give the step its old uid, or set spec.allowNonRestoredState: true to leave that state behind",
        )


def check_spark_steps(before: StateBefore, steps: tuple[str, ...], allow_non_restored: bool) -> None:
    """Raise when Spark's own stateful steps came or went: Spark would fail in the first batch.

    Args:
        before: what is there.
        steps: the stateful steps of the pipeline, as users write them.
        allow_non_restored: the manifest's ``allowNonRestoredState``.

    Raises:
        NotRestorableError: names the step and what to do.
    """
    if before.spark_state is False and steps:
        raise NotRestorableError(
            f"{before.url} holds no state of Spark's own steps, and the pipeline has a streaming {steps[0]}: Spark cannot add one to a "
            "query that has run",
            field="spec.job",
            remedy="Do the work in a keyed step with a new uid, or start the job without its state under another name",
        )
    if before.spark_state and not steps and not allow_non_restored:
        raise NotRestorableError(
            f"{before.url} holds state of Spark's own stateful steps, of which the pipeline has none",
            field="spec.job",
            remedy="Give the pipeline its steps back, or set spec.allowNonRestoredState: true to leave that state behind",
        )
