"""CheckedPipeline: a pipeline that was built for a trial, compared with the state that it would resume from."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.checkpoint.formats.pipeline import Pipeline as StoredPipeline
from statefulspark.config.job import StatefulSparkJob
from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.file_sinks import file_sink_of
from statefulspark.job.spark.query_plan import check_spark_state, spark_state_steps
from statefulspark.job.spark.sinks import check_sink
from statefulspark.job.spark.sources import deleting_sources, warn_of_passing_sources
from statefulspark.job.start.preflight import (
    RestorableState,
    check_mode,
    check_sink_batches,
    check_spark_steps,
    check_uids,
    check_way_back,
    warn_of_restored_ids,
)
from statefulspark.job.start.stored_pipeline import check_pipeline, pipeline_of, warn_of_repeated_steps
from statefulspark.pipeline.job import Job
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPipeline:
    """What is known of a pipeline that fits the job's state."""

    steps: dict[str, StepSpec]
    """The keyed steps by uid."""
    has_spark_state: bool
    stored: StoredPipeline
    sink_batch: int
    """Last batch that a sink with numbers has; -1 if the job does not start from ``--from`` or has another sink."""


def checked_pipeline(
    spark: SparkSession,
    manifest: StatefulSparkJob,
    store: ObjectStore,
    restorable: RestorableState,
    built: tuple[Job, DataStreamWriter],
    *,
    from_origin: bool,
) -> CheckedPipeline:
    """Compare a pipeline with the state that is there; touches nothing.

    Args:
        spark: the session.
        manifest: the job.
        store: opened at the job folder.
        restorable: the state that the next attempt resumes from.
        built: the pipeline's job and query.
        from_origin: True if that state is a checkpoint or savepoint that the user has named.

    Raises:
        InvalidInputError: the pipeline is wrong.
        NotRestorableError: the state does not fit the pipeline.
    """
    job, writer = built
    spec = manifest.spec
    state_steps = check_plan(spark, manifest, built)
    steps = {step.uid: step for step in job.steps}
    check_uids(restorable, set(steps), spec.allow_non_restored_state)
    check_spark_steps(restorable, state_steps, spec.allow_non_restored_state)
    stored = pipeline_of(job, writer, restorable)
    check_pipeline(restorable, stored, may_drop=spec.allow_non_restored_state)
    warn_of_repeated_steps(stored)
    warn_of_passing_sources(writer._df)  # noqa: SLF001  the DataFrame is what the user gave
    sink = file_sink_of(spark, writer)
    sinks = [*job.sinks, *([sink] if sink is not None else [])]
    known = max((each.last_batch() for each in sinks), default=-1)
    if sinks and not from_origin:
        check_sink_batches(restorable, known)
    sink_batch = known if from_origin else -1
    check_way_back(store, restorable, state_steps, sink_batch)
    if from_origin and not sinks:
        warn_of_restored_ids(store, restorable)
    return CheckedPipeline(
        steps=steps,
        has_spark_state=bool(state_steps),
        stored=stored,
        sink_batch=sink_batch,
    )


def check_plan(spark: SparkSession, manifest: StatefulSparkJob, built: tuple[Job, DataStreamWriter]) -> tuple[str, ...]:
    """Check a pipeline by itself, whatever state there is.

    Args:
        spark: the session.
        manifest: the job.
        built: the pipeline's job and query.

    Returns:
        Spark's own stateful steps, as users write them.

    Raises:
        InvalidInputError: the pipeline is wrong.
    """
    job, writer = built
    if not job.steps:
        raise InvalidInputError("the pipeline has no keyed step", field="spec.job", remedy="Use job.key_by(...).process(...)")
    checkpointing = manifest.spec.checkpointing
    state_steps = spark_state_steps(writer._df)  # noqa: SLF001  the DataFrame is what the user gave
    check_spark_state(state_steps, dict(spark.sparkContext.getConf().getAll()), checkpointing.spark_location)
    check_mode(checkpointing.mode, state_steps, deleting_sources(writer._df))  # noqa: SLF001  see above
    check_sink(spark, writer)
    return state_steps
