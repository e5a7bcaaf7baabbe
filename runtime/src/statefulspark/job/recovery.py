"""From a lineage to what a new attempt starts with: Spark's local checkpoint location, the batch log, the states."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from statefulspark.checkpoint import paths
from statefulspark.checkpoint.bundle import decode_bundle
from statefulspark.checkpoint.changelog import read_changelog
from statefulspark.checkpoint.lineage import Lineage
from statefulspark.checkpoint.location import LocationFiles
from statefulspark.checkpoint.state_mirror import StateMirror
from statefulspark.checkpoint.state_packs import stored_packs
from statefulspark.job.batches import BatchLog, BatchParameters
from statefulspark.state.layout import StateInfo
from statefulspark.state.registry import StateRegistry
from statefulspark.storage.base import ObjectStore


def restore_location(files: LocationFiles, lineage: Lineage) -> None:
    """Fill Spark's local checkpoint location: the uncommitted batch, if there is one, runs again with its recorded offsets."""
    layers = []
    base = lineage.base
    if base is not None and base.metadata.spark_location is not None:
        key = paths.resolve_reference(base.key, base.metadata.spark_location.path)
        layers.append(decode_bundle(base.store.get(key), path=f"{base.url}/{base.metadata.spark_location.path}"))
    layers += [decode_bundle(record.files, path=f"batch record {record.batch}") for record in lineage.records]
    uncommitted = lineage.uncommitted_batch
    if uncommitted is not None:
        files.restore(layers, planned=uncommitted, committed=lineage.last_committed_in_spark)
    elif base is not None:
        files.restore(layers, planned=base.metadata.batch, committed=base.metadata.batch)


def restore_spark_state(state: StateMirror, lineage: Lineage, store: ObjectStore) -> None:
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


def batch_log(lineage: Lineage, delays_ms: dict[str, int]) -> BatchLog:
    """What is known of the batches so far."""
    seen: dict[str, int | None] = {}
    if lineage.base is not None:
        seen |= dict(lineage.base.metadata.watermarks)
    if lineage.records:
        seen |= dict(lineage.records[-1].max_event_times)
    last = lineage.records[-1] if lineage.records else None
    return BatchLog(
        delays_ms=delays_ms,
        committed=lineage.committed_batch,
        max_event_times=seen,
        base=lineage.base.metadata.batch if lineage.base is not None else -1,
        changelogs=[ref.model_dump(mode="json") for ref in lineage.changelogs],
        expected_base=lineage.committed_batch,
        processing_time_ms=last.processing_time_ms if last is not None else 0,
    )


def recovered_batch(lineage: Lineage) -> BatchParameters | None:
    """The batch that runs again, with the parameters of its record."""
    if not lineage.records:
        return None
    record = lineage.records[-1]
    return BatchParameters(batch=record.batch, watermarks=dict(record.watermarks), processing_time_ms=record.processing_time_ms)


def state_registry(lineage: Lineage, store: ObjectStore) -> StateRegistry:
    """The states of the base checkpoint and of the changelogs after it, whose headers name those that were first used since."""
    found: dict[int, StateInfo] = {}
    if lineage.base is not None:
        found |= _by_id(lineage.base.metadata.states)
    newest = {(ref.uid, ref.slot): ref for ref in lineage.changelogs}
    for ref in newest.values():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "changelog"
            store.get_file(ref.key, path)
            header, _ = read_changelog(path)
            found |= _by_id(header.states)
    return StateRegistry(found.values())


def _by_id(states: Iterable[Mapping[str, Any]]) -> dict[int, StateInfo]:
    return {info.state_id: info for info in map(StateInfo.from_json, states)}
