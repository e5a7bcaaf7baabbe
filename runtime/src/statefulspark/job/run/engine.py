"""Engine: a running job's streaming query and slots in Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.coordinator.query.lifecycle import QueryLifecycle
from statefulspark.coordinator.slots.job_slots import JobSlots
from statefulspark.errors import StatefulSparkError
from statefulspark.exchange.config import SlotConfig
from statefulspark.job.spark.file_sinks import file_sink_of
from statefulspark.job.spark.last_progress import LastProgress
from statefulspark.job.spark.session import quiet
from statefulspark.job.spark.slot_supervisor import SlotSupervisors
from statefulspark.job.spark.stream_writer import ends_by_itself, named, without_sink
from statefulspark.pipeline.job import Job

_PROGRESS_MAX = 100
_WAITS = frozenset({"Waiting for data to arrive", "Waiting for next trigger"})
"""Spark's status messages of a query between two batches."""
_log = structlog.get_logger("statefulspark.job")


class Engine:
    """Starts and ends query and slots. The running job decides when, and with which parallelism.

    Attributes:
        spark: The session; it is stopped with the job.
        last_progress: Spark's report of the last batch.
        build: Builds the pipeline for a parallelism.
        query: The present query, None before the first one.
        query_settings: Sets what a query needs in a session that is the user's, while one is built and started.
    """

    def __init__(
        self,
        *,
        spark: SparkSession,
        lifecycle: QueryLifecycle,
        slots: JobSlots,
        build: Callable[[int], tuple[Job, DataStreamWriter]],
        slot_config: Callable[[Job], SlotConfig],
        next_pause_s: Callable[[int, StatefulSparkError], float | None],
        name: str,
        local_checkpoint: str,
        query_settings: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Hold the parts; nothing runs yet.

        Args:
            spark: the session.
            lifecycle: told before each start and stop of a query.
            slots: the coordinator's.
            build: builds the pipeline for a parallelism.
            slot_config: what slots of that pipeline need.
            next_pause_s: see `SlotSupervisors`.
            name: the query's.
            local_checkpoint: Spark's local checkpoint location.
            query_settings: sets what a query needs in a session that is the user's, while one is built and started.
        """
        self.spark = spark
        self.build = build
        self.query: StreamingQuery | None = None
        self._lifecycle = lifecycle
        self._slots = slots
        self._slot_config = slot_config
        self._next_pause_s = next_pause_s
        self._name = name
        self._local_checkpoint = local_checkpoint
        self.query_settings = query_settings
        self._slot_supervisors: SlotSupervisors | None = None
        self.last_progress = LastProgress(lambda: self.query)
        self._progress: dict[int, dict[str, Any]] = {}
        self._progress_of: StreamingQuery | None = None
        self._waited: StreamingQuery | None = None
        self._changing = threading.Lock()

    @property
    def parallelism(self) -> int:
        """Number of slots."""
        return len(self._slots.all())

    def start_slots(self, job: Job) -> None:
        """Submit the slots of a pipeline."""
        self._slot_supervisors = SlotSupervisors(self.spark.sparkContext, self._slot_config(job), next_pause_s=self._next_pause_s)
        self._slot_supervisors.start()

    def start_query(self, writer: DataStreamWriter) -> None:
        """Start a query in the job's local checkpoint location."""
        if self._lifecycle.before_start(available_now=ends_by_itself(writer)):
            writer = without_sink(writer)
        elif (sink := file_sink_of(self.spark, writer)) is not None:
            sink.fill(self._lifecycle.committed_by_spark)
        self.query = named(writer.option("checkpointLocation", self._local_checkpoint), self._name).start()

    def has_waited(self) -> bool:
        """True if the present query runs and has waited for rows since it began, so that it has no batch of an earlier query to repeat."""
        query = self.query
        if query is None or not query.isActive:
            return False
        if query is not self._waited and query.status["message"] in _WAITS:
            self._waited = query
        return query is self._waited

    def start_query_again(self) -> None:
        """Rebuild the pipeline for the current slots and start its query; the previous query has ended."""
        with self.query_settings():
            _, writer = self.build(self.parallelism)
            self.start_query(writer)

    def replace_query(self, query: StreamingQuery, steady: Callable[[], bool]) -> None:
        """Stop ``query`` if it runs, and start another one in its place. A command that pauses batches waits for that.

        Args:
            query: Nothing happens if it is no longer the present one.
            steady: Returns False if the job ends or is rescaled, so that no query may be started.
        """
        with self._changing:
            if steady() and query is self.query:
                _log.info("restarting the query", dry_run=self._lifecycle.dry_run)
                self.end_query()
                self.start_query_again()

    def is_over(self, query: StreamingQuery, steady: Callable[[], bool], *, end: bool) -> bool:
        """Return True if ``query`` has ended by itself, or is ended now with ``end``; arguments as in `replace_query`."""
        with self._changing:
            if not steady() or query is not self.query:
                return False
            if end:
                self.end_query()
            return end or not query.isActive

    def end_query(self) -> None:
        """Stop the query in the middle of a batch, if it runs; slots and session stay."""
        if self.query is not None and self.query.isActive:
            self._lifecycle.before_stop()
            with quiet(self.spark):
                quietly(self.query.stop)

    def end_query_and_slots(self, *, keep_files: bool = False) -> None:
        """Stop the query, then the slots, without a word from Spark; the session stays. With ``keep_files``, slots that follow may link the files of these."""
        with quiet(self.spark):
            with self._changing:
                if self.query is not None:
                    self._lifecycle.before_stop()
                    quietly(self.query.stop)
            self._slots.stop(keep_files=keep_files)
            if self._slot_supervisors is not None:
                self._slot_supervisors.stop()

    def recent_progress(self) -> list[dict[str, Any]]:
        """Spark's progress of the last batches: ``batch``, ``rows`` of all sources, ``ms`` of the whole trigger."""
        query = self.query
        if query is None:
            return []
        if query is not self._progress_of:
            self._progress_of, self._progress = query, {}
        # PySpark's own API makes a hundred calls to the JVM per batch, on every access.
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
        _log.info("ignored an error while shutting down", error=str(error)[:200])
