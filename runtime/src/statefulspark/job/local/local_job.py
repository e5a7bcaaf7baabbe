"""``statefulspark.local``: keyed steps in a notebook or a PySpark shell, on the session that is there."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, cast
from weakref import WeakKeyDictionary

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812  Spark's own convention
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.checkpoint.formats.pipeline import TICKS, StepKey
from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark.exchange.rendezvous import announce, rendezvous
from statefulspark.job.local.collected_output import CollectedOutput
from statefulspark.job.local.interruptible import Background
from statefulspark.job.local.local_manifest import local_manifest
from statefulspark.job.local.running_local_job import RunningLocalJob
from statefulspark.job.local.session_checks import check_threads, check_workers, checked_parallelism, session_facts
from statefulspark.job.local.session_settings import protocol_settings
from statefulspark.job.run.engine import quietly
from statefulspark.job.run.running import RunningJob
from statefulspark.job.spark.logs import hide_failures, show_failures
from statefulspark.job.spark.session import quiet
from statefulspark.job.spark.sources import source_ids
from statefulspark.job.spark.stream_writer import reset_options, writer_setting
from statefulspark.job.start.interactive import Interactive
from statefulspark.job.start.start_job import RunOptions, start_job
from statefulspark.pipeline.job import Job
from statefulspark.pipeline.outputs import WriteOutput, outputs_writer
from statefulspark.pipeline.tagged_streams import TaggedStream
from statefulspark.pipeline.tick_source import tick_source
from statefulspark.process.api.output_tag import MAIN
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.storage.local.working_folder import WorkingFolder, local_job_path, open_local_job_folder

_START_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.05
_SLOT_READY: Final = "RUNNING"
"""See `SlotStatus.state`."""
_running: Final[list[RunningLocalJob]] = []
"""The jobs of this process that were started; those that have ended leave with the next start."""
_starting: Final = threading.Lock()
_log = structlog.get_logger("statefulspark.local")


def local(spark: SparkSession, *, name: str = "local", parallelism: int | None = None, backend: str = "rocksdb") -> LocalJob:
    """Make a job that runs in this notebook or PySpark shell, on the session that is there. It needs no manifest.

    The session is embedded (``local[4]``, ``local[*]``) and stays the user's: the job never stops it and leaves its settings as they are.
    State is kept in a temporary folder, which is removed when the job ends. To keep state, run the same functions with a manifest.

    >>> import statefulspark
    >>> job = statefulspark.local(spark)  # doctest: +SKIP
    >>> counts = job.key_by(clicks, "user").process(Count(), "user STRING, count BIGINT", uid="counts")  # doctest: +SKIP
    >>> running = job.start(counts)  # doctest: +SKIP
    >>> running.process_all_available()  # doctest: +SKIP
    >>> running.output()  # doctest: +SKIP
    >>> running.state("counts", "count")  # doctest: +SKIP
    >>> running.stop()  # doctest: +SKIP

    Args:
        spark: The session.
        name: The job's name: lower-case letters, digits and dashes. Jobs that run at the same time have different names.
        parallelism: Number of slots. Each occupies one of Spark's task threads. Defaults to 2, or to 1 if Spark has two threads only.
        backend: State backend: ``rocksdb``, ``filesystem`` or ``memory``.

    Raises:
        InvalidInputError: The session or an argument is wrong; names the remedy.
    """
    return LocalJob(spark, name=name, parallelism=parallelism, backend=backend)


class LocalJob(Job):
    """A job in a notebook, made by `local`. Its ``key_by`` and ``broadcast`` are those of `Job`, and `start` runs what they have made.

    A cell may be run again: the latest step of a uid counts. Steps that are not part of the started stream do not run.
    """

    def __init__(self, spark: SparkSession, *, name: str = "local", parallelism: int | None = None, backend: str = "rocksdb") -> None:
        self._facts = session_facts(spark)
        self._path = local_job_path()
        self._backend = backend
        manifest = local_manifest(name, checked_parallelism(self._facts, parallelism), backend, self._path)
        check_workers(spark)
        super().__init__(
            spark=spark,
            name=name,
            args=[],
            parallelism=manifest.spec.parallelism,
            max_parallelism=manifest.spec.max_parallelism,
            endpoint=rendezvous(self._path / "endpoint"),
            hashings={},
        )
        self._manifest = manifest
        self._present: RunningLocalJob | None = None
        self._writer_options: WeakKeyDictionary[DataStreamWriter, Any] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<LocalJob {self.name!r}: {self.parallelism} slots, backend {self._backend}>"

    def start(self, stream: DataFrame | TaggedStream | DataStreamWriter, *, rows_max: int = 100_000) -> RunningLocalJob:
        """Run a stream of this job until it is stopped. It starts with empty state, and a second start begins again.

        If the call is interrupted, nothing is left running.

        Args:
            stream: A streaming DataFrame that comes from a keyed step of this job, or a stream with side outputs: its rows are kept for
                `RunningLocalJob.output`. Or ``stream.writeStream...``, not started, which writes to a sink of its own.
            rows_max: Most rows that are kept of each output; older ones are dropped.

        Raises:
            InvalidInputError: The stream is not one of this job, or something is wrong with it; nothing was started.
            ConflictError: The job runs already.
        """
        if rows_max < 1:
            raise InvalidInputError(f"{rows_max} is less than 1", field="rows_max", remedy="Set the number of rows to keep")
        sink = self._sink_of(stream, rows_max)
        steps = self._steps_of(sink.df)
        # Not while another cell's thread starts a job: the session's settings are changed for a moment.
        with _starting:
            self._check_free()
            return self._started(sink, steps)

    def stop(self) -> None:
        """Stop the job if it runs; see `RunningLocalJob.stop`."""
        if self._present is not None:
            self._present.stop()

    def outputs(self, stream: TaggedStream, /, **writers: WriteOutput | None) -> DataStreamWriter:
        """Write the outputs of a keyed step with side outputs, each with a function of its own; see `Job.outputs`. A cell may call it again."""
        writer = super().outputs(stream, **writers)
        self.add_tagged_stream(stream)
        return writer

    def tick_stream(self, uid: str) -> DataFrame:
        """The stream of a keyed step's ticks. Another job of the session may have registered its own source since."""
        with quiet(self.spark, "ERROR"):
            self.spark.dataSource.register(tick_source(self.endpoint))
        return super().tick_stream(uid)

    def add_step(self, step: StepSpec, key: StepKey, inputs: Sequence[DataFrame] = ()) -> None:
        """Note a keyed step; one of the same uid is replaced, because cells are run again."""
        self._steps.pop(step.uid, None)
        super().add_step(step, key, inputs)

    def _sink_of(self, stream: object, rows_max: int) -> _Sink:
        if isinstance(stream, DataStreamWriter):
            return self._sink_of_writer(stream)
        if isinstance(stream, TaggedStream):
            outputs = {name: CollectedOutput(cast("T.StructType", stream.df.schema[name].dataType), rows_max) for name in stream.outputs}
            writers = {name: output.write for name, output in outputs.items()}
            return _Sink(df=stream.df, writer=lambda: outputs_writer(stream, writers), outputs=outputs)
        if isinstance(stream, DataFrame) and stream.isStreaming:
            main = CollectedOutput(stream.schema, rows_max)
            return _Sink(df=stream, writer=lambda: stream.writeStream.foreachBatch(main.write), outputs={MAIN: main})
        raise InvalidInputError(
            "the DataFrame is not a stream" if isinstance(stream, DataFrame) else f"expected a stream, got {type(stream).__name__}",
            field="stream",
            remedy='Pass the result of job.key_by(...).process(..., uid="...")',
        )

    def _sink_of_writer(self, writer: DataStreamWriter) -> _Sink:
        """A sink of the user's. The writer may be started again, without the options that the start before has added."""
        options = self._writer_options.setdefault(writer, writer_setting(writer, "extraOptions"))

        def again() -> DataStreamWriter:
            reset_options(writer, options)
            return writer

        return _Sink(df=writer._df, writer=again)  # noqa: SLF001  the DataFrame is what the user gave

    def _steps_of(self, df: DataFrame) -> list[tuple[StepSpec, StepKey]]:
        """The steps that are part of a stream."""
        uids = sorted({source.identity for source in source_ids(df) if source.provider == TICKS})
        if not uids:
            raise InvalidInputError("the stream has no keyed step", field="stream", remedy='Use job.key_by(...).process(..., uid="...")')
        if unknown := [uid for uid in uids if uid not in self._steps]:
            raise InvalidInputError(
                f"the keyed step {unknown[0]!r} belongs to another job", field="stream", remedy="Run the cell with key_by again"
            )
        return [(self._steps[uid], self._keys[uid]) for uid in uids]

    def _check_free(self) -> None:
        if self._present is not None and not self._present.is_active:
            self._present.stop()  # it has failed, and its folder is still being removed
        _running[:] = [each for each in _running if each.is_active]
        if any(each.name == self.name for each in _running):
            raise ConflictError(
                f"a job {self.name!r} is running already. Stop it first, with stop() of its handle or of the job; if no variable has them, run\n"
                "for query in spark.streams.active: query.stop()"
            )
        check_threads(self._facts, self.parallelism, {each.name: each.parallelism for each in _running})

    def _started(self, sink: _Sink, steps: list[tuple[StepSpec, StepKey]]) -> RunningLocalJob:
        _log_quietly()
        folder = open_local_job_folder(self._path)
        abandoned = threading.Event()
        starting = Background(lambda: self._start(sink, steps, folder, abandoned), "local-job-start")
        try:
            running = starting.result(_START_TIMEOUT_S, f"the job has not started within {_START_TIMEOUT_S:.0f} s")
            quietly(lambda: hide_failures(self.spark, self.name))
            handle = RunningLocalJob(self.name, running, folder, sink.outputs, self._after)
        except BaseException:
            abandoned.set()
            Background(lambda: _undo(starting, folder), "local-job-undo").result(_START_TIMEOUT_S, "the job is still being stopped")
            raise
        self._present = handle
        _running.append(handle)
        atexit.unregister(_stop_all)
        atexit.register(_stop_all)  # after PySpark's own, so that it runs before
        return handle

    def _start(self, sink: _Sink, steps: list[tuple[StepSpec, StepKey]], folder: WorkingFolder, abandoned: threading.Event) -> RunningJob:
        def pipeline(job: Job) -> DataStreamWriter:
            announce(folder.path / "endpoint", job.endpoint)
            for step, key in steps:
                job.add_step(step, key)
            return sink.writer()

        def settings() -> AbstractContextManager[None]:
            return protocol_settings(self.spark)

        interactive = Interactive(session=self.spark, pipeline=pipeline, query_settings=settings, folder=folder.path)
        with quiet(self.spark, "ERROR"), settings():
            running = start_job(self._manifest, RunOptions(interactive=interactive))
        _wait_for_slots(running, abandoned)
        return running

    def _after(self) -> None:
        """Leave the session as it was. It may have been stopped under the job."""
        quietly(lambda: show_failures(self.spark, self.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sink:
    """Where the rows of a stream go."""

    df: DataFrame
    writer: Callable[[], DataStreamWriter]
    outputs: dict[str, CollectedOutput] = field(default_factory=dict)


def _wait_for_slots(job: RunningJob, abandoned: threading.Event) -> None:
    """Wait until all slots are ready: from then on they end by themselves when the job stops, and remove their files.

    Args:
        job: The job.
        abandoned: Set if nobody waits for the job any more.

    Raises:
        Exception: What the job failed with, such as an error of a function's ``open``.
    """
    while not job.wait(_POLL_S).final:
        if abandoned.is_set() or all(slot.state == _SLOT_READY for slot in job.status().slots):
            return
    job.wait(None)
    if job.failure is not None:
        raise job.failure


def _undo(starting: Background[RunningJob], folder: WorkingFolder) -> None:
    """End what a start that was interrupted or has failed leaves."""
    try:
        starting.result(_START_TIMEOUT_S, "").cancel()
    except Exception as error:  # noqa: BLE001  the caller raises it already; a start that fails has ended its parts
        _log.debug("nothing to stop", error=str(error)[:200])
    finally:
        folder.close()


def _stop_all() -> None:
    for each in _running:
        each.stop_here()


def _log_quietly() -> None:
    """Print warnings only, unless the user has configured structlog."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
        )
