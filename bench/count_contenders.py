"""The contenders of `count_per_key.py`. Each runs on a folder of files, one file per batch, and is checked by the state it ends with.

.venv/bin/python bench/count_contenders.py NAME FOLDER      (internal: prints what a run took as one line of JSON)
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
from count_job import INPUT, OUTPUT
from our_job import Batches, run_job

RESULT = "RESULT "
Counts = dict[str, int]


def expected_counts(source: Path) -> Counts:
    """What every contender must hold in the end, counted by Arrow."""
    counted = pc.value_counts(ds.dataset(source, format="parquet").to_table(columns=["key"]).column("key"))
    return {entry["values"]: entry["counts"] for entry in counted.to_pylist()}


def run_ours(source: Path, work: Path) -> tuple[Batches, Counts]:
    """This runtime, row at a time, with changelogs and checkpoints."""
    from statefulspark.checkpoint.inspect.reader import read_state

    batches = run_job("count", "count_job.py", [source], work)
    held = {entry.key: entry.value for entry in read_state(f"file://{work}/storage/count", "count", "count")}
    return batches, held


def run_aggregation(source: Path, work: Path) -> tuple[Batches, Counts]:
    """Spark's own aggregation, all in the JVM."""
    return _run_spark(source, work, lambda events: events.groupBy("key").count(), {})


def run_transform_with_state(source: Path, work: Path) -> tuple[Batches, Counts]:
    """Spark's own Python transformWithState, row form."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class CountProcessor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.state = handle.getValueState("count", "count bigint")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803  Spark's names
            count: int = self.state.get()[0] if self.state.exists() else 0  # type: ignore[index]  # there is one when it exists
            for _ in rows:
                count += 1
                yield Row(key=key[0], count=count)
            self.state.update((count,))

        def close(self) -> None:
            pass

    def build(events: Any) -> Any:
        return events.groupBy("key").transformWithState(
            statefulProcessor=CountProcessor(), outputStructType=OUTPUT, outputMode="Update", timeMode="None"
        )

    return _run_spark(source, work, build, {"stateVarName": "count"})


def _run_spark(source: Path, work: Path, build: Callable[[Any], Any], read: dict[str, str]) -> tuple[Batches, Counts]:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.local.dir", str(work))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    events = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = build(events).writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(work / "checkpoint")).start()
    query.awaitTermination()
    batches = [
        {"batch": entry.batchId, "rows": entry.numInputRows, "ms": entry.durationMs["triggerExecution"]}
        for entry in query.recentProgress
        if entry.numInputRows
    ]
    state = spark.read.format("statestore").options(**read).load(str(work / "checkpoint"))
    held = {row[0]: row[1] for row in state.selectExpr("key.key", "value.count").collect()}
    spark.stop()
    return batches, held


OURS = "statefulspark, row at a time"
AGGREGATION = "Spark groupBy().count(), JVM"
TRANSFORM_WITH_STATE = "Spark transformWithState, Python rows"
CONTENDERS: dict[str, Callable[[Path, Path], tuple[Batches, Counts]]] = {
    OURS: run_ours,
    AGGREGATION: run_aggregation,
    TRANSFORM_WITH_STATE: run_transform_with_state,
}


def main(name: str, source: Path) -> None:
    """Run one contender in this process and tell how long its batches took, and for how many keys it holds a wrong count."""
    with tempfile.TemporaryDirectory(prefix="bench-count-") as work:
        batches, held = CONTENDERS[name](source, Path(work))
    expected = expected_counts(source)
    wrong = sum(held.get(key) != expected.get(key) for key in held.keys() | expected.keys())
    print(RESULT + json.dumps({"batches": batches, "keys": len(expected), "wrong": wrong}), flush=True)
    os._exit(0)  # the JVM's threads need not be waited for


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
