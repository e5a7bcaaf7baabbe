"""The contenders of `session_windows.py`. Each runs on a folder of files, one file per batch, and is checked by the sessions it has written.

.venv/bin/python bench/session_contenders.py NAME FOLDER      (internal: prints what a run took as one line of JSON)
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from our_job import Batches, run_job
from session_job import GAP_MS, INPUT, OUTPUT

RESULT = "RESULT "


def expected_sessions(source: Path) -> tuple[pd.DataFrame, int]:
    """All sessions, computed with pandas, and a time by whose watermark every contender must have written those that have ended."""
    files = [pd.read_parquet(path) for path in sorted(source.iterdir())]
    rows = pd.concat(files, ignore_index=True)
    rows["at"] = rows["at"].astype("datetime64[ms]").astype("int64")
    rows = rows.sort_values(["key", "at"], kind="stable")
    begins = rows["at"].diff().gt(GAP_MS) | rows["key"].ne(rows["key"].shift())
    sessions = rows.assign(session=begins.cumsum()).groupby(["key", "session"])["at"].agg(["min", "max", "size"]).reset_index()
    found = pd.DataFrame({"key": sessions["key"], "start": sessions["min"], "end": sessions["max"] + GAP_MS, "count": sessions["size"]})
    horizon = int(files[-2]["at"].astype("datetime64[ms]").astype("int64").max()) if len(files) > 1 else 0
    return found, horizon


def wrong_sessions(written: pd.DataFrame, source: Path) -> tuple[int, int]:
    """How many sessions were written, and how many of them are wrong, twice, or missing."""
    expected, horizon = expected_sessions(source)
    right = set(expected.itertuples(index=False, name=None))
    due = set(expected[expected["end"] <= horizon].itertuples(index=False, name=None))
    found = list(written[["key", "start", "end", "count"]].itertuples(index=False, name=None))
    return len(found), len(found) - len(set(found)) + len(set(found) - right) + len(due - set(found))


def run_ours(source: Path, work: Path) -> Batches:
    """This runtime's session windows, row at a time, with changelogs and checkpoints."""
    return run_job("sessions", "session_job.py", [source, work / "out"], work)


def run_transform_with_state(source: Path, work: Path) -> Batches:
    """Spark's own Python transformWithState, row form: one session per key in a value state, and a timer at its end."""
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Sessions(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.session = handle.getValueState("session", "start bigint, end bigint, count bigint")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803  Spark's names
            start, end, count = self.session.get() or (0, 0, 0)
            registered = end if count else None
            for at in sorted(row.millis for row in rows):
                if count and at > end:
                    yield Row(key=key[0], start=start, end=end, count=count)
                    count = 0
                start, end, count = (start if count else at), at + GAP_MS, count + 1
            if registered is not None and registered != end:
                self.handle.deleteTimer(registered)
            if registered != end:
                self.handle.registerTimer(end)
            self.session.update((start, end, count))

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: N802, N803  Spark's names
            if self.session.exists():
                start, end, count = self.session.get()  # type: ignore[misc]  # there is one when it exists
                self.session.clear()
                yield Row(key=key[0], start=start, end=end, count=count)

        def close(self) -> None:
            pass

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
    events = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).parquet(str(source)).withWatermark("at", "0 seconds")
    sessions = (
        events.selectExpr("key", "at", "unix_millis(at) AS millis")
        .groupBy("key")
        .transformWithState(statefulProcessor=Sessions(), outputStructType=OUTPUT, outputMode="Append", timeMode="EventTime")
    )
    writer = sessions.writeStream.format("parquet").option("path", str(work / "out")).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(work / "checkpoint")).start()
    query.awaitTermination()
    batches = [
        {"batch": entry.batchId, "rows": entry.numInputRows, "ms": entry.durationMs["triggerExecution"]}
        for entry in query.recentProgress
        if entry.numInputRows
    ]
    spark.stop()
    return batches


OURS = "statefulspark session windows, row at a time"
TRANSFORM_WITH_STATE = "Spark transformWithState with timers, Python rows"
CONTENDERS: dict[str, Callable[[Path, Path], Batches]] = {OURS: run_ours, TRANSFORM_WITH_STATE: run_transform_with_state}


def main(name: str, source: Path) -> None:
    """Run one contender in this process and tell how long its batches took, and how many sessions are wrong."""
    with tempfile.TemporaryDirectory(prefix="bench-sessions-") as work:
        batches = CONTENDERS[name](source, Path(work))
        written = pd.concat([pd.read_parquet(path) for path in (Path(work) / "out").glob("*.parquet")], ignore_index=True)
        sessions, wrong = wrong_sessions(written, source)
    print(RESULT + json.dumps({"batches": batches, "sessions": sessions, "wrong": wrong}), flush=True)
    os._exit(0)  # the JVM's threads need not be waited for


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
