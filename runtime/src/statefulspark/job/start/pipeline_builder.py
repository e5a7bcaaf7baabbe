"""Builds a job's pipeline: calls the user's function and checks what it returns."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.config.job import StatefulSparkJob
from statefulspark.errors import StatefulSparkError
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.job.spark.stream_writer import check_writer
from statefulspark.job.start.pipeline_errors import no_writer, pipeline_error
from statefulspark.pipeline.job import Job
from statefulspark.pipeline.script import Pipeline, register_by_value
from statefulspark.pipeline.tick_source import tick_source


class PipelineBuilder:
    """Builds the pipeline for one endpoint."""

    def __init__(
        self,
        spark: SparkSession,
        manifest: StatefulSparkJob,
        pipeline: Pipeline,
        max_parallelism: int,
        endpoint: Endpoint,
        hashings: Mapping[str, int],
    ) -> None:
        self._spark = spark
        self._manifest = manifest
        self._pipeline = pipeline
        self._max_parallelism = max_parallelism
        self._endpoint = endpoint
        self._hashings = hashings
        spark.dataSource.register(tick_source(endpoint))

    def build(self, parallelism: int) -> tuple[Job, DataStreamWriter]:
        """Run the user's pipeline function."""
        job = Job(
            spark=self._spark,
            name=self._manifest.metadata.name,
            id=self._manifest.job_id,
            args=list(self._manifest.spec.job.args),
            parallelism=parallelism,
            max_parallelism=self._max_parallelism,
            endpoint=self._endpoint,
            hashings=self._hashings,
        )
        try:
            writer = self._pipeline(job)
        except StatefulSparkError:
            raise
        except Exception as error:
            raise pipeline_error(error) from error
        register_by_value(self._manifest)
        if not isinstance(writer, DataStreamWriter):
            raise no_writer(writer)
        check_writer(self._spark, writer)
        job.check_outputs()
        return job, writer
