"""Compares the pipeline that is about to run with the one that wrote the stored state, before an attempt is claimed."""

from __future__ import annotations

from collections import Counter

import structlog
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.checkpoint.formats.pipeline import EXACT, TICKS, Pipeline
from statefulspark.checkpoint.spark.source_offsets import realign
from statefulspark.errors import NotRestorableError
from statefulspark.job.spark.query_plan import stateful_steps
from statefulspark.job.spark.sources import source_ids
from statefulspark.job.start.preflight import RestorableState
from statefulspark.pipeline.job import Job

_log = structlog.get_logger("statefulspark.pipeline")


def hashings(restorable: RestorableState) -> dict[str, int]:
    """Hash versions of the stored steps' keys, per uid. Stored state can only be found with the hash it was written with."""
    stored = {step.uid: step.hashing for step in restorable.pipeline.steps} if restorable.pipeline is not None else {}
    return dict.fromkeys(restorable.uids, EXACT) | stored


def pipeline_of(job: Job, writer: DataStreamWriter, restorable: RestorableState) -> Pipeline:
    """Describe the pipeline that was just built, and keep the keys of steps that it lacks but whose state is still stored."""
    present = {key.uid for key in job.keys}
    kept = restorable.pipeline.steps if restorable.pipeline is not None else ()
    return Pipeline(
        steps=(*job.keys, *(step for step in kept if step.uid not in present)),
        sources=source_ids(writer._df),  # noqa: SLF001  the DataFrame is what the user gave
        spark_steps=stateful_steps(writer._df),  # noqa: SLF001  as above
    )


def check_pipeline(restorable: RestorableState, pipeline: Pipeline, *, may_drop: bool) -> None:
    """Raise when stored state or source positions could not be found again.

    Args:
        restorable: The state that is there.
        pipeline: The one that is about to run.
        may_drop: The manifest's ``allowNonRestoredState``.

    Raises:
        NotRestorableError: names the step or source and what to do.
    """
    for stored in restorable.pipeline.steps if restorable.pipeline is not None else ():
        now = pipeline.step(stored.uid)
        if now is not None and not now.finds_state_of(stored):
            raise NotRestorableError(
                f"the key of step {stored.uid!r} was {stored} when its state was stored, and is {now} now: state is found by a hash of the key "
                "columns in their order and types, so none of it would be found",
                field="key_by",
                remedy="Name, order and cast the columns before key_by as they were, or give the step a new uid to start it without state",
            )
    _check_spark_steps(restorable, pipeline)
    realign(
        restorable.location, restorable.pipeline.sources if restorable.pipeline is not None else None, pipeline.sources, may_drop=may_drop
    )


def warn_of_repeated_steps(pipeline: Pipeline) -> None:
    """Warn of keyed steps that the plan has more than once, as when both inputs of a step read one keyed step."""
    times = Counter(source.identity for source in pipeline.sources if source.provider == TICKS)
    for uid in (uid for uid, count in times.items() if count > 1):
        _log.warning("the query reads the result of a keyed step more than once, and Spark runs the step for each. Read it once", uid=uid)


def _check_spark_steps(restorable: RestorableState, pipeline: Pipeline) -> None:
    """Raise when Spark's own stateful steps are others than before, or have changed places: Spark would give one the state of another."""
    stored = restorable.pipeline.spark_steps if restorable.pipeline is not None else ()
    now = pipeline.spark_steps
    if not (restorable.spark_state and stored and now):
        return
    swapped = stored != now and sorted(map(str, stored)) == sorted(map(str, now))
    if swapped or [step.name for step in stored] != [step.name for step in now]:
        raise NotRestorableError(
            f"Spark finds the state of its own stateful steps by their position in the plan: they were {'; '.join(map(str, stored))} when it was stored, and "
            f"are {'; '.join(map(str, now))} now",
            field="spec.job",
            remedy="Restore their order; do new work in keyed steps (job.key_by(...).process(...))",
        )
