"""An input file that is deleted before a batch reads it is named in Spark's log, once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from runtime.tests.small_session import small_session

from statefulspark.job.spark.logs import FILE_LISTER, show_missing_files

pytestmark = pytest.mark.slow


def test_a_deleted_input_file_is_named(tmp_path: Path) -> None:
    """Spark plans its batches from a list of files, and passes over those that are gone by then."""
    rows, log = tmp_path / "rows", tmp_path / "log"
    rows.mkdir()
    for number in range(3):
        file = rows / f"{number}.json"
        file.write_text(f'{{"n": {number}}}\n')
        os.utime(file, (number, number))  # the order in which Spark reads them
    seen: list[int] = []

    def batch(frame: DataFrame, _: int) -> None:
        seen.extend(row.n for row in frame.collect())
        (rows / "1.json").unlink(missing_ok=True)

    with small_session() as session:
        session.sparkContext.setLogLevel("ERROR")
        show_missing_files(session)
        jvm: Any = session.sparkContext._jvm
        log4j = jvm.org.apache.logging.log4j
        context = log4j.LogManager.getContext(False)
        configuration = context.getConfiguration()
        layout = log4j.core.layout.PatternLayout.newBuilder().withPattern("%p %m%n").build()
        appender = log4j.core.appender.FileAppender.newBuilder().setName("file").withFileName(str(log)).setLayout(layout).build()
        appender.start()
        configuration.getLoggerConfig(FILE_LISTER).addAppender(appender, None, None)
        context.updateLoggers()
        stream = session.readStream.schema("n INT").option("maxFilesPerTrigger", 1).json(str(rows))
        query = stream.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.processAllAvailable()
        query.stop()
    assert sorted(seen) == [0, 2]
    lines = [line for line in log.read_text().splitlines() if line.startswith("WARN")]
    assert len(lines) == 1
    assert f"{rows}/1.json" in lines[0]
