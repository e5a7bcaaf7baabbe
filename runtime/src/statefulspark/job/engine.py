"""What a running job has in Spark: its streaming query and the tasks of its slots."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.errors import StatefulSparkError
from statefulspark.exchange.config import SlotConfig
from statefulspark.job.coordinator import Coordinator
from statefulspark.job.dry_runs import without_sink
from statefulspark.job.job import Job
from statefulspark.job.keepers import SlotKeepers
from statefulspark.job.session import quiet

_PROGRESS_MAX = 100
_log = structlog.get_logger("statefulspark.job")


class Engine:
    """Starts and ends query and slots; when, and with which parallelism, is decided by the running job.

    Attributes:
        spark: The session; it is stopped with the job.
        build: Builds the pipeline for a parallelism.
        query: The present query, None before the first one.
    """

    def __init__(
        self,
        *,
        spark: SparkSession,
        coordinator: Coordinator,
        build: Callable[[int], tuple[Job, DataStreamWriter]],
        slot_config: Callable[[Job], SlotConfig],
        next_pause_s: Callable[[int, StatefulSparkError], float | None],
        name: str,
        local_checkpoint: str,
    ) -> None:
        """Hold the parts; nothing runs yet.

        Args:
            spark: the session.
            coordinator: serving already.
            build: builds the pipeline for a parallelism.
            slot_config: what slots of that pipeline need.
            next_pause_s: see `SlotKeepers`.
            name: the query's.
            local_checkpoint: Spark's local checkpoint location.
        """
        self.spark = spark
        self.build = build
        self.query: StreamingQuery | None = None
        self._coordinator = coordinator
        self._slot_config = slot_config
        self._next_pause_s = next_pause_s
        self._name = name
        self._local_checkpoint = local_checkpoint
        self._keepers: SlotKeepers | None = None
        self._progress: dict[int, dict[str, Any]] = {}
        self._progress_of: StreamingQuery | None = None
        self._changing = threading.Lock()

    @property
    def parallelism(self) -> int:
        """Number of slots."""
        return len(self._coordinator.slots.all())

    def start_slots(self, job: Job) -> None:
        """Submit the slots of a pipeline."""
        self._keepers = SlotKeepers(self.spark.sparkContext, self._slot_config(job), next_pause_s=self._next_pause_s)
        self._keepers.start()

    def start_query(self, writer: DataStreamWriter) -> None:
        """Start a query in the job's local checkpoint location."""
        if self._coordinator.next_query():
            writer = without_sink(writer)
        self.query = writer.option("checkpointLocation", self._local_checkpoint).queryName(self._name).start()

    def start_query_again(self) -> None:
        """Build the pipeline anew for the present slots and start its query; the one before has ended."""
        _, writer = self.build(self.parallelism)
        self.start_query(writer)

    def change_query(self, ending: Callable[[], bool]) -> None:
        """Go over to the dry run of a batch, or from it to the real query. A command that pauses batches waits for that.

        Args:
            ending: whether the job ends, so that no query is to be started.
        """
        with self._changing:
            if ending() or self.query is None:
                return
            _log.info("query changes for a dry run", batch=self._coordinator.dry_runs.batch)
            self.end_query()
            self.start_query_again()

    def end_query(self) -> None:
        """Stop the query in the middle of a batch, if it runs; slots and session stay."""
        if self.query is not None and self.query.isActive:
            self._coordinator.end_query()
            with quiet(self.spark):
                quietly(self.query.stop)

    def end_query_and_slots(self) -> None:
        """Stop the query, then the slots; the session stays."""
        with self._changing:
            if self.query is not None:
                self._coordinator.end_query()
                quietly(self.query.stop)
        self._coordinator.stop_slots()
        if self._keepers is not None:
            self._keepers.stop()

    def recent_progress(self) -> list[dict[str, Any]]:
        """Spark's own figures of the last batches: ``batch``, ``rows`` of all sources, ``ms`` of the whole trigger."""
        query = self.query
        if query is None:
            return []
        if query is not self._progress_of:
            self._progress_of, self._progress = query, {}
        # pyspark's own way makes a hundred calls to the JVM for each batch, each time anew.
        entries = query._jsq.recentProgress()  # noqa: SLF001  there is no public way to the JSON
        for entry in reversed(entries):
            if entry.batchId() in self._progress:
                break
            found = json.loads(entry.json())
            spent = found["durationMs"]
            if "triggerExecution" in spent and "addBatch" in spent:
                self._progress[found["batchId"]] = {
                    "batch": found["batchId"],
                    "rows": found["numInputRows"],
                    "ms": spent["triggerExecution"],
                }
        newest = sorted(self._progress)[-_PROGRESS_MAX:]
        self._progress = {batch: self._progress[batch] for batch in newest}
        return list(self._progress.values())


def quietly(action: Callable[[], Any]) -> None:
    """End a part that may be ending already."""
    try:
        action()
    except Exception as error:  # noqa: BLE001  Py4J raises many kinds when Spark is on its way out
        _log.info("while ending", error=str(error)[:200])
