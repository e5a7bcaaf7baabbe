"""Applies changes of names to ``_metadata``: every place that names a uid or a state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, SlotState
from statefulspark.checkpoint.formats.pipeline import TICKS, Pipeline, SourceId, SparkStep, tick_label
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state_tables.write.changes import Changes

_T = TypeVar("_T")


def known_uids(metadata: CheckpointMetadata) -> frozenset[str]:
    """Return all uids of keyed steps that a checkpoint names, also those without state."""
    steps = {step.uid for step in metadata.pipeline.steps} if metadata.pipeline is not None else set()
    stored = {uid for slot in metadata.slots for uid in slot.operator_batches}
    named = {str(state["uid"]) for state in metadata.states}
    return frozenset(steps | stored | named | metadata.watermarks.keys() | metadata.second_watermarks.keys())


def changed_metadata(metadata: CheckpointMetadata, changes: Changes) -> CheckpointMetadata:
    """Return the metadata with the names after the changes, which `Changes.check` has accepted. Files and ids of states are as they were."""

    def by_uid(values: Mapping[str, _T]) -> dict[str, _T]:
        return {changes.uid(uid): value for uid, value in values.items() if uid not in changes.removed_uids}

    def slot(each: SlotState) -> SlotState:
        return each.model_copy(update={"operator_batches": by_uid(each.operator_batches)})

    return metadata.model_copy(
        update={
            "states": tuple(_states(metadata, changes)),
            "slots": tuple(map(slot, metadata.slots)),
            "watermarks": by_uid(metadata.watermarks),
            "second_watermarks": by_uid(metadata.second_watermarks),
            "event_times_by_value": by_uid(metadata.event_times_by_value),
            "batch_watermarks": by_uid(metadata.batch_watermarks),
            "pipeline": _pipeline(metadata.pipeline, changes) if metadata.pipeline is not None else None,
        }
    )


def removed_ids(metadata: CheckpointMetadata, changes: Changes) -> frozenset[int]:
    """Return the ids of the states that are left out."""
    infos = map(StateInfo.from_json, metadata.states)
    return frozenset(info.state_id for info in infos if not changes.keeps(info))


def _states(metadata: CheckpointMetadata, changes: Changes) -> Iterator[dict[str, object]]:
    for state in metadata.states:
        info = StateInfo.from_json(state)
        if changes.keeps(info):
            uid, name = changes.renamed(info)
            yield {**state, "uid": uid, "name": name}


def _pipeline(pipeline: Pipeline, changes: Changes) -> Pipeline:
    steps = (step for step in pipeline.steps if step.uid not in changes.removed_uids)
    return pipeline.model_copy(
        update={
            "steps": tuple(step.model_copy(update={"uid": changes.uid(step.uid)}) for step in steps),
            "sources": tuple(_source(source, changes) for source in pipeline.sources),
            "spark_steps": tuple(_spark_step(step, changes) for step in pipeline.spark_steps),
        }
    )


def _source(source: SourceId, changes: Changes) -> SourceId:
    """Return a place in the plan. That of a removed step stays, because Spark's offset log has a line for it, but names no uid any more."""
    feeds = "" if source.feeds in changes.removed_uids else changes.uid(source.feeds)
    if source.provider != TICKS:
        return source.model_copy(update={"feeds": feeds})
    identity = "" if source.identity in changes.removed_uids else changes.uid(source.identity)
    return source.model_copy(update={"identity": identity, "label": tick_label(identity), "feeds": feeds})


def _spark_step(step: SparkStep, changes: Changes) -> SparkStep:
    labels = {tick_label(uid): tick_label(new) for uid, new in changes.uids.items()} | dict.fromkeys(
        map(tick_label, changes.removed_uids), tick_label("")
    )
    return step.model_copy(update={"reads": tuple(sorted({labels.get(label, label) for label in step.reads}))})
