"""The log of Spark's file sink under jobs whose sink changes between their runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from runtime.tests.depth import examples
from runtime.tests.small_session import small_session

from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.file_sinks import FileSink
from statefulspark.job.start.preflight import RestorableState, check_sink_batches

pytestmark = pytest.mark.slow
INTERVAL = 3
"""Batches between two compactions of the log."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with small_session() as session:
        session.conf.set("spark.sql.streaming.fileSink.log.compactInterval", str(INTERVAL))
        session.conf.set("spark.sql.streaming.fileSink.log.cleanupDelay", "0")
        yield session


def write(spark: SparkSession, path: Path, batch: int) -> bool:
    """Commit a batch as Spark's sink does; False if it skips the batch."""
    jvm: Any = cast("Any", spark.sparkContext._jvm)
    sinks = jvm.org.apache.spark.sql.execution.streaming.sinks
    log = sinks.FileStreamSinkLog(1, spark._jsparkSession, str(path / "_spark_metadata"), jvm.scala.Option.empty())
    gateway: Any = spark.sparkContext._gateway
    files = gateway.new_array(sinks.SinkFileStatus, 1)
    files[0] = sinks.SinkFileStatus(f"file:{path}/{batch}", 1, False, 1, 1, 1, "add")
    return bool(log.add(batch, files))


def batches_of(spark: SparkSession, path: Path) -> list[int]:
    """The batches whose files a reader of the sink sees."""
    jvm: Any = cast("Any", spark.sparkContext._jvm)
    log = jvm.org.apache.spark.sql.execution.streaming.sinks.FileStreamSinkLog(
        1, spark._jsparkSession, str(path / "_spark_metadata"), jvm.scala.Option.empty()
    )
    return sorted(int(str(each.path()).rpartition("/")[2]) for each in log.allFiles())


RUNS = st.lists(
    st.tuples(st.sampled_from(["stays", "new", "deleted", "another job's", "the one before"]), st.integers(1, 7), st.integers(0, 12)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(12, 60))
@given(runs=RUNS)
def test_between_two_runs_the_sink_may_become_any_other(spark: SparkSession, runs: list[tuple[str, int, int]]) -> None:
    """No batch is skipped and no compaction fails; a sink that would skip batches is refused."""
    with TemporaryDirectory() as folder:
        number, last = 0, -1
        present = before = Path(folder, "out-0")
        written: dict[Path, list[int]] = {present: []}
        for change, more, foreign in runs:
            if change in ("new", "another job's"):
                number += 1
                before, present = present, Path(folder, f"out-{number}")
                written[present] = []
                for batch in range(foreign if change == "another job's" else 0):
                    assert write(spark, present, batch)
                    written[present].append(batch)
            elif change == "deleted":
                shutil.rmtree(present, ignore_errors=True)
                written[present] = []
            elif change == "the one before":
                before, present = present, before
            sink = FileSink(spark, str(present))
            known = max(written[present], default=-1)
            assert known <= sink.last_batch() <= max(known, last)
            restorable = RestorableState(max_parallelism=None, uids=frozenset(), url="", batch=last, last_begun=last)
            if sink.last_batch() > last:
                with pytest.raises(InvalidInputError, match="Write to a new path"):
                    check_sink_batches(restorable, sink.last_batch())
                before, present = present, before
                continue
            check_sink_batches(restorable, sink.last_batch())
            sink.fill(last)
            for _ in range(more):
                last += 1
                assert write(spark, present, last), "the sink skips the batch"
                written[present].append(last)
            assert batches_of(spark, present) == written[present]


@pytest.mark.parametrize("left", [[1], [3, 4], [7]])
def test_a_log_that_lost_its_beginning_is_mended(spark: SparkSession, tmp_path: Path, left: list[int]) -> None:
    """The folder was deleted while the query ran, and the next compaction has failed: the query starts again and goes on."""
    (tmp_path / "_spark_metadata").mkdir()
    for batch in left:
        entry = {"path": f"file:/x/{batch}", "size": 1, "isDir": False, "modificationTime": 1, "blockReplication": 1, "blockSize": 1}
        (tmp_path / "_spark_metadata" / str(batch)).write_text(f"v1\n{json.dumps(entry | {'action': 'add'})}\n")
    FileSink(spark, str(tmp_path)).fill(left[-1])
    later = range(left[-1] + 1, left[-1] + 1 + 2 * INTERVAL)
    for batch in later:
        assert write(spark, tmp_path, batch)
    assert batches_of(spark, tmp_path) == [*left, *later]
