"""From a lineage to what a new attempt starts with: Spark's local checkpoint location, the batch log, the states."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from statefulspark.checkpoint.formats.changelog import read_changelog
from statefulspark.checkpoint.formats.pipeline import Pipeline
from statefulspark.checkpoint.lineage.lineage import Lineage
from statefulspark.checkpoint.restore.changelog_objects import by_object, download_changelogs
from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.source_offsets import realign
from statefulspark.checkpoint.spark.state_packs import stored_packs
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.checkpoint.spark.stored_location import location_files
from statefulspark.coordinator.batches.changelogs import BatchChangelogs
from statefulspark.coordinator.batches.event_times import Delays, EventTimes
from statefulspark.coordinator.batches.log import BatchLog, parameters_of
from statefulspark.coordinator.core.life import BatchParameters
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.evolution.histories import merge_newer
from statefulspark.state.registry import StateRegistry
from statefulspark.storage.base import ObjectStore


def restore_location(files: LocationFiles, lineage: Lineage, pipeline: Pipeline | None = None, *, may_drop: bool = False) -> None:
    """Fill Spark's local checkpoint location: the uncommitted batch, if there is one, runs again with its recorded offsets.

    Args:
        files: The new location.
        lineage: What the attempt starts from.
        pipeline: The one that is about to run; its sources need not be those that wrote the files.
        may_drop: Whether sources that it no longer reads are left behind.

    Raises:
        NotRestorableError: its sources cannot be matched with those that are stored.
    """
    base, uncommitted = lineage.base, lineage.uncommitted_batch
    if uncommitted is None and base is None:
        return
    content, sources = location_files(lineage)
    changed = pipeline is not None and pipeline.sources != sources
    if pipeline is not None and changed:
        content = realign(content, sources, pipeline.sources, may_drop=may_drop)
    planned = uncommitted if uncommitted is not None else lineage.last_committed_in_spark
    files.restore(content, planned=planned, committed=lineage.last_committed_in_spark, durable=not changed)


def restore_spark_state(state: SparkStateUploader, lineage: Lineage, store: ObjectStore) -> None:
    """Fill ``state/`` of Spark's local checkpoint location with the state before the batch that runs next.

    Args:
        state: Of the new location.
        lineage: What the attempt starts from.
        store: Opened at the job folder.

    Raises:
        CorruptDataError: a pack is damaged or missing.
    """
    uncommitted = lineage.uncommitted_batch
    if uncommitted is None:
        uncommitted = lineage.base.metadata.batch + 1 if lineage.base is not None else 0
    state.restore(stored_packs(lineage, store), uncommitted)


def batch_log(
    lineage: Lineage,
    delays_ms: Mapping[str, Delays],
    after: Mapping[str, tuple[str, ...]] | None = None,
    idle_after_ms: Mapping[str, int] | None = None,
    watermark_by: Mapping[str, tuple[tuple[str, ...], ...]] | None = None,
) -> BatchLog:
    """The batch log of the lineage.

    Args:
        lineage: What the attempt starts from.
        delays_ms: Watermark delay of each input per uid.
        after: Uids of the steps before each step, as in `BatchLog`; None if no step comes after another.
        idle_after_ms: As in `BatchLog`; None if no input becomes idle.
        watermark_by: As in `BatchLog`; None if no step has it.
    """
    seen = EventTimes()
    if lineage.base is not None:
        seen.reached(lineage.base.metadata.watermarks, lineage.base.metadata.second_watermarks)
    if lineage.records:
        seen.reached(lineage.records[-1].max_event_times, lineage.records[-1].second_max_event_times)
    # The next second input is another one: it has no watermark before its first row.
    seen.forget_second(uid for uid, delays in delays_ms.items() if len(delays) == 1)
    last = lineage.records[-1] if lineage.records else None
    if last is not None:
        seen.reached_by_value(last.event_times_by_value)
    elif lineage.base is not None:
        seen.reached_by_value(lineage.base.metadata.event_times_by_value)
    for uid in delays_ms:
        seen.forget_other_values(uid, (watermark_by or {}).get(uid, ()))
    return BatchLog(
        delays_ms=delays_ms,
        after=after or {},
        idle_after_ms=idle_after_ms or {},
        watermark_by=watermark_by or {},
        watermarks=_committed_watermarks(lineage),
        committed=lineage.committed_batch,
        event_times=seen,
        base=lineage.base.metadata.batch if lineage.base is not None else -1,
        changelogs=list(lineage.changelogs),
        expected_base=lineage.committed_batch,
        processing_time_ms=max(
            lineage.base.metadata.processed_ms if lineage.base is not None else 0, last.processing_time_ms if last is not None else 0
        ),
        committed_time_ms=_committed_time_ms(lineage),
    )


def _committed_watermarks(lineage: Lineage) -> dict[str, int | None]:
    """Watermarks of the last batch that is known to be committed, per uid. The record of a jump has none: it follows the batch before it."""
    known: dict[str, int | None] = dict(lineage.base.metadata.batch_watermarks) if lineage.base is not None else {}
    for record in lineage.records[:-1]:
        known = dict(record.watermarks) or known
    return known


def _committed_time_ms(lineage: Lineage) -> int | None:
    """A processing time that the committed batches have reached and that no batch will fall behind; None if there is no state."""
    known = [record.processing_time_ms for record in lineage.records]
    if lineage.base is not None:
        known.insert(0, lineage.base.metadata.processed_ms)
    if not lineage.records:
        return known[0] if known else None
    # The last record's batch may not be committed and runs again, at its own time. A checkpoint that does not know its batch's says when it was
    # triggered, which may have been later.
    return min(known[-2:]) if len(known) > 1 else None


def recovered_batch(lineage: Lineage, log: BatchLog) -> BatchParameters | None:
    """The batch that runs again, with the parameters of its record; None if there is none.

    Steps that its pipeline did not have get the watermark of the batches before, and steps that the job no longer has get none.
    """
    if not lineage.records:
        return None
    recorded = parameters_of(lineage.records[-1])
    watermarks = {uid: recorded.watermarks[uid] if uid in recorded.watermarks else log.watermark(uid) for uid in log.delays_ms}
    return replace(recorded, watermarks=watermarks)


def state_registry(lineage: Lineage, store: ObjectStore, *, changelogs: BatchChangelogs, allow_non_restored: bool = False) -> StateRegistry:
    """The states of the base checkpoint and of the changelogs after it, whose headers name those that were first used since.

    The batch that runs again counts too if an attempt has processed it completely: once Spark turns out to have committed it, its
    changelogs are taken over, with the state ids in them.

    Args:
        lineage: What the attempt starts from.
        store: Opened at the job folder.
        changelogs: Of batches, in storage.
        allow_non_restored: Whether the job may leave restored state behind.
    """
    found: dict[int, StateInfo] = {}
    if lineage.base is not None:
        merge_newer(found, map(StateInfo.from_json, lineage.base.metadata.states), where=lineage.base.url)
    newest = {(ref.uid, ref.slot): ref for ref in lineage.changelogs}
    for refs in by_object(newest.values()):
        with tempfile.TemporaryDirectory() as folder:
            for ref, path in zip(refs, download_changelogs(store, refs, Path(folder) / "changelog"), strict=True):
                merge_newer(found, map(StateInfo.from_json, read_changelog(path, name=ref.key).header.states), where=ref.key)
    registry = StateRegistry(found.values(), allow_non_restored=allow_non_restored)
    uncommitted = lineage.uncommitted_batch
    if uncommitted is not None:
        found_complete = changelogs.complete(uncommitted)
        registry.take_over(found_complete.states if found_complete is not None else ())
    return registry
