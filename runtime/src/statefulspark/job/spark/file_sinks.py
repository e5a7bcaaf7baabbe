"""Spark's file sinks: which batches they have committed, and how a job whose batch numbers start above 0 can write to them.

A file sink lists its files in ``_spark_metadata``, a log with an entry per batch. It skips batches that are in the log, and compacts the
entries every few batches, which fails if one is missing. A log lacks entries if the job writes to a new path, if the sink's folder was deleted,
or if the first batch of a job follows that of a savepoint. They are added, without files, before each start of a query.

Source: ``FileStreamSink`` and ``CompactibleFileStreamLog`` of Spark.
"""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.job.spark.sinks import FILE_FORMATS
from statefulspark.job.spark.stream_writer import writer_setting

_LOG_VERSION = 1
_EMPTY_ENTRY = "v1"


class FileSink:
    """The log of a file sink.

    Args:
        spark: The session.
        path: The sink's folder.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        jvm: Any = cast("Any", spark.sparkContext._jvm)  # noqa: SLF001  Spark's log of committed files has no Python interface
        self._jvm = jvm
        self._folder = self._jvm.org.apache.hadoop.fs.Path(path, "_spark_metadata")
        session: Any = spark._jsparkSession  # noqa: SLF001
        self._fs = self._folder.getFileSystem(session.sessionState().newHadoopConf())

    def last_batch(self) -> int:
        """The highest batch that the sink knows, -1 for none."""
        if not self._fs.exists(self._folder):
            return -1
        latest = self._log().getLatestBatchId()
        return int(latest.get()) if latest.isDefined() else -1

    def fill(self, until: int) -> None:
        """Add entries without files, so that the log has no gap before the batch that follows ``until``.

        Args:
            until: Last batch before the one that runs next; -1 for none.
        """
        entries = self._entries()
        compacted = max((batch for batch, whole in entries.items() if whole), default=-1)
        log = self._log()
        if compacted < 0 and (first := min([*entries, until + 1])) > 0:
            interval = int(log.compactInterval())
            compacted = first // interval * interval - 1
            if compacted >= 0:
                self._write(f"{compacted}.compact")
        gateway: Any = self._spark.sparkContext._gateway  # noqa: SLF001
        nothing = gateway.new_array(self._jvm.org.apache.spark.sql.execution.streaming.sinks.SinkFileStatus, 0)
        for batch in range(compacted + 1, max([*entries, until]) + 1):
            if batch not in entries:
                log.add(batch, nothing)

    def _entries(self) -> dict[int, bool]:
        """The batches of the log; True for one whose entry sums up all before it."""
        if not self._fs.exists(self._folder):
            return {}
        names = (str(each.getPath().getName()).partition(".") for each in self._fs.listStatus(self._folder))
        return {int(number): suffix == "compact" for number, _, suffix in names if number.isdecimal() and suffix in ("", "compact")}

    def _log(self) -> Any:
        log = self._jvm.org.apache.spark.sql.execution.streaming.sinks.FileStreamSinkLog
        return log(_LOG_VERSION, self._spark._jsparkSession, self._folder.toString(), self._jvm.scala.Option.empty())  # noqa: SLF001

    def _write(self, name: str) -> None:
        stream = self._fs.create(self._jvm.org.apache.hadoop.fs.Path(self._folder, name))
        stream.write(bytearray(_EMPTY_ENTRY.encode()))
        stream.close()


def file_sink_of(spark: SparkSession, writer: DataStreamWriter) -> FileSink | None:
    """The file sink that a query writes to; None when it writes elsewhere."""
    source, options = writer_setting(writer, "source"), writer_setting(writer, "extraOptions")
    path = options.get("path")
    if str(source).lower() not in FILE_FORMATS or not path.isDefined():
        return None
    return FileSink(spark, str(path.get()))
