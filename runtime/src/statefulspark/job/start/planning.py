"""Builds a job's pipeline in Spark without starting it."""

from __future__ import annotations

from statefulspark.config.job import StatefulSparkJob
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.job.spark.session import open_session
from statefulspark.job.start.checked_pipeline import check_plan
from statefulspark.job.start.pipeline_builder import PipelineBuilder
from statefulspark.pipeline.script import load_pipeline


def build_plan(manifest: StatefulSparkJob, *, output: int | None = None) -> None:
    """Start an embedded Spark, build the pipeline, and check what `start_job` checks of it before it looks at stored state.

    Spark resolves columns, types and sources, and reads the schemas of files; no query starts, and storage is not touched.

    Args:
        manifest: The job.
        output: Descriptor of the file that Spark writes to instead of this process's stdout and stderr.

    Raises:
        InvalidInputError: The pipeline is wrong; names the field and the remedy.
    """
    pipeline = load_pipeline(manifest)
    parallelism = manifest.spec.parallelism
    spark = open_session(manifest, "local[2]", parallelism, output=output)
    try:
        nowhere = Endpoint(location="grpc+unix:///", secret="")
        builder = PipelineBuilder(spark, manifest, pipeline, manifest.spec.max_parallelism, nowhere, {})
        built = builder.build(parallelism)
        check_plan(spark, manifest, built)
        built[0].pickled_steps()  # a start pickles them for the slots
    finally:
        spark.stop()
