"""Checks a query's sink before the attempt is claimed. Spark itself detects these mistakes only when the query starts."""

from __future__ import annotations

import difflib
from typing import Any, Final, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.connectors.installed import connector_remedy
from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.query_failures import spark_sentence
from statefulspark.job.spark.stream_writer import writer_setting

_WITHOUT_PROVIDER: Final = frozenset({"memory", "foreach", "foreachbatch", "table"})
"""Sinks that Spark resolves itself, in ``DataStreamWriter.startInternal``."""
FILE_FORMATS: Final = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})
"""Names of Spark's file sinks."""
_KNOWN: Final = sorted({"console", "delta", "kafka", "noop"} | FILE_FORMATS | _WITHOUT_PROVIDER)


def check_sink(spark: SparkSession, writer: DataStreamWriter) -> None:
    """Raise when Spark would refuse to start the query because of its sink.

    Raises:
        InvalidInputError: The format is unknown, its output mode does not fit the query, or a file sink has no path.
    """
    jvm: Any = cast("Any", spark.sparkContext._jvm)  # noqa: SLF001  Spark's checks have no Python interface
    session: Any = spark._jsparkSession  # noqa: SLF001
    source = str(writer_setting(writer, "source"))
    if source.lower() not in _WITHOUT_PROVIDER:
        try:
            jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(source, session.sessionState().conf())
        except (Py4JError, PySparkException):
            raise InvalidInputError(f"Spark has no sink {source!r}", field="writeStream.format", remedy=_remedy(source)) from None
    if source.lower() in FILE_FORMATS and not writer_setting(writer, "extraOptions").get("path").isDefined():
        raise InvalidInputError("the sink has no path", field="writeStream", remedy='Add .option("path", ...)')
    plan = writer._df._jdf.queryExecution().analyzed()  # noqa: SLF001  the DataFrame is what the user gave
    try:
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, writer_setting(writer, "outputMode"))
    except (Py4JError, PySparkException) as error:
        raise InvalidInputError(spark_sentence(error), field="spec.job", remedy="Correct the pipeline; nothing was started") from None


def _remedy(source: str) -> str:
    if near := difflib.get_close_matches(source.lower(), _KNOWN, n=1):
        if near[0] != source.lower():
            return f"Did you mean {near[0]!r}?"
        return connector_remedy(source)
    remedy = connector_remedy(source)
    return f"Correct the name, or {remedy[0].lower()}{remedy[1:]}"
