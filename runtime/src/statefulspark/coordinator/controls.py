"""JobControls: what the driver API, the command line and the operator may see of a running job and ask of it.

Implemented by ``job.running.RunningJob``; called by the REST API (many threads) and by the ``run`` command (main thread).
This module imports nothing but the error tree, redaction and other data classes, so the job may import its data classes without pulling in a web server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

from statefulspark.config.savepoints import SavepointFormat
from statefulspark.coordinator.history import JobHistory
from statefulspark.coordinator.ongoing_work import PendingSnapshot
from statefulspark.coordinator.query.queried_state import StateReads
from statefulspark.coordinator.reported_metrics import Lag, SourceStatus, UserMetricStatus
from statefulspark.coordinator.slots.rescales import Rescale, RescalePlan
from statefulspark.coordinator.slots.status import SlotStatus, StepSkew
from statefulspark.coordinator.snapshots.savepoint_formats import MissingTable
from statefulspark.errors import StatefulSparkError
from statefulspark.logs.redaction import redact

_MESSAGE_MAX = 64 << 10


class JobState(StrEnum):
    """Life cycle of a job. FINISHED, SUSPENDED, CANCELED and FAILED are final for this driver."""

    CREATED = "CREATED"
    """Being restored; no batch has started."""
    RUNNING = "RUNNING"
    RESCALING = "RESCALING"
    """Between two parallelisms: checkpointed, slots and query are being started again."""
    SUSPENDED = "SUSPENDED"
    """Stopped with a checkpoint or savepoint, from which the next run resumes."""
    FAILED = "FAILED"
    FINISHED = "FINISHED"
    """The sources have nothing more, or the job was drained."""
    CANCELED = "CANCELED"

    @property
    def final(self) -> bool:
        """True when no further batch will run in this driver."""
        return self in _FINAL


_FINAL = frozenset({JobState.SUSPENDED, JobState.FAILED, JobState.FINISHED, JobState.CANCELED})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """Reason for which a job failed or a request was refused."""

    reason: str
    """One word for programs: the error class without "Error", e.g. ``UserFunction``, ``Unavailable``, ``CorruptData``."""
    message: str
    """For people: names the field or the object and the remedy; carries the user's own traceback for ``UserFunction``."""

    @classmethod
    def of(cls, error: BaseException) -> JobError:
        """Describe an exception; one that is not of this package's tree becomes ``Internal`` and keeps only its class name and text.

        Here errors leave the process: their texts are redacted and bounded.
        """
        if isinstance(error, StatefulSparkError):
            return cls(reason=type(error).__name__.removesuffix("Error"), message=redact(_bounded(str(error))))
        return cls(reason="Internal", message=redact(_bounded(f"{type(error).__name__}: {error}")))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailing:
    """Failures since the last committed batch of a job that runs on: its restart strategy starts the query again after each."""

    failures: int
    """Consecutive failures, at least 1."""
    since_ms: int
    """Time of the first one; milliseconds since the epoch."""
    error: JobError
    """The last one: its type and first sentence, at most 500 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """The state of a job after its cancellation; its savepoints always stay."""

    deleted: bool
    """True if its checkpoints and changelogs were deleted: it would start with empty state."""
    problem: str | None = None
    """Reason for which not all were deleted, although the manifest says DELETE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStatus:
    """Division of each slot's managed memory."""

    revision: int
    """0 is the manifest's split; grows with each change in this driver."""
    budget_bytes: int
    """Memory that a slot's process is sized for: managed_bytes cannot be more."""
    managed_bytes: int
    """Managed memory of each slot."""
    write_buffer_ratio: float
    high_prio_pool_ratio: float
    cache_bytes: int
    """Capacity of the block cache, write buffers included."""
    write_buffer_bytes: int
    """Limit of all write buffers together."""
    high_prio_bytes: int
    """Part of the cache for index and filter blocks."""
    warnings: tuple[str, ...]
    """Warnings about this split."""
    slots: tuple[int, ...]
    """Slots that have it; the others take it over with their next heartbeat, or when they are started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChange:
    """Another split; what is None stays as it is."""

    managed_bytes: int | None = None
    write_buffer_ratio: float | None = None
    high_prio_pool_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One completed checkpoint or savepoint."""

    id: int
    kind: Literal["checkpoint", "savepoint"] = "checkpoint"
    path: str
    """URL of the folder that holds ``_metadata``; what ``statefulspark run --from`` takes."""
    batch: int
    """The state is that after this batch."""
    completed_ms: int
    """Milliseconds since the epoch."""
    duration_ms: int
    """From the trigger to the published ``_metadata``."""
    sync_ms: int
    """Longest time for which a slot could not process rows."""
    size_bytes: int
    """All files the checkpoint refers to."""
    uploaded_bytes: int
    """Bytes that were new, i.e. not already uploaded by an earlier checkpoint."""
    format: SavepointFormat = "native"
    without_table: tuple[MissingTable, ...] = ()
    """Of a canonical savepoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTimers:
    """Timers of one keyed step that have not fired."""

    number: int | None
    """Estimate; None while no slot has counted them."""
    next_event_ms: int | None
    """Time of the first event-time timer; it fires when the watermark reaches it."""
    next_processing_ms: int | None
    """Time of the first processing-time timer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One consistent look at a job."""

    job_id: str
    name: str
    state: JobState
    since_ms: int
    """When ``state`` was entered; milliseconds since the epoch."""
    parallelism: int
    max_parallelism: int
    attempt: int
    """Number of this driver start in the job's lineage."""
    batch: int
    """Last committed batch; -1 before the first."""
    input_rows: int
    """Rows that reached the keyed steps in this driver; a row counts for each of them."""
    output_rows: int
    """Rows that the keyed steps emitted in this driver."""
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    """Per uid; milliseconds since the epoch, None before the first event."""
    timers: Mapping[str, PendingTimers] = field(default_factory=dict)
    """Per uid that has pending timers."""
    slots: tuple[SlotStatus, ...] = ()
    skew: Mapping[str, StepSkew] = field(default_factory=dict)
    """Per uid that has had rows."""
    sources: tuple[SourceStatus, ...] = ()
    """In Spark's order; empty before the first batch."""
    lag: Lag | None = None
    """Over all sources; None before the first batch."""
    user_metrics: Mapping[str, tuple[UserMetricStatus, ...]] = field(default_factory=dict)
    """Per uid whose function has registered any; at most 200 in all."""
    user_metrics_left_out: int = 0
    """More of them, which `metrics` has."""
    last_checkpoint: CheckpointInfo | None = None
    last_savepoint: CheckpointInfo | None = None
    pending_snapshot: PendingSnapshot | None = None
    """The checkpoint or savepoint that is being taken."""
    last_rescale: Rescale | None = None
    """The last one in this driver."""
    restored_from: str | None = None
    """Checkpoint or savepoint this attempt started from; None when it started empty."""
    failed_checkpoints: int = 0
    restarts: int = 0
    """Times the query was started again after a failure in this driver."""
    committed_batches: int = 0
    """Batches that this driver has committed."""
    idle: bool = False
    """True if the query waits for new rows: no batch is running or to be repeated, and no timer is due."""
    failing: JobFailing | None = None
    """Set from the first failure of a batch until one is committed, or the job is idle."""
    error: JobError | None = None
    """Set when ``state`` is FAILED."""
    canceled: Cancellation | None = None
    """Set when ``state`` is CANCELED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """One number. ``name`` carries its unit (``_bytes``, ``_seconds``, ``_rows``); prefix and ``_total`` are added by the exposition."""

    name: str
    help: str
    kind: Literal["counter", "gauge"]
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


class JobControls(Protocol):
    """A running job as seen from outside. Thread-safe: the API calls it from several threads at once.

    Every method may raise UnavailableError (storage or a slot did not answer in time), ConflictError (the job's state does not
    allow it now, e.g. two rescales at once) and ClosedError (the job has ended).
    """

    @property
    def queries(self) -> StateReads:
        """Reads single keys of its state."""

    def status(self) -> JobStatus:
        """Look; never blocks on storage or slots and also works after the job has ended."""

    def checkpoints(self) -> list[CheckpointInfo]:
        """Retained checkpoints and the savepoints taken by this driver, oldest first."""

    def trigger_checkpoint(self, timeout_s: float) -> CheckpointInfo:
        """Take a checkpoint now and wait until it is published."""

    def trigger_savepoint(self, target: str | None, timeout_s: float, form: SavepointFormat = "native") -> CheckpointInfo:
        """Take a savepoint below the URL ``target`` (None: the manifest's savepoint directory) and wait until it is published.

        One canonical savepoint is taken at a time: another one waits for it, within its own time. If it is not complete in time, nothing is left.
        """

    def stop(
        self, *, savepoint: bool | None, target: str | None, drain: bool, timeout_s: float, form: SavepointFormat | None = None
    ) -> CheckpointInfo | None:
        """End the job after the current batch, keeping its state.

        Args:
            savepoint: True takes a savepoint first, False a checkpoint, None a savepoint if ``target`` or the manifest says where.
            target: URL below which the savepoint goes; None for the manifest's directory.
            drain: Advance the watermark to its maximum first, so that every event-time timer fires; the job then counts as FINISHED.
            timeout_s: When it passes without a complete checkpoint the job runs on and UnavailableError is raised.
            form: Of the savepoint; None for native.

        Returns:
            What the job can be restored from; None when it had no state to keep, or when a stop without a savepoint gave up a batch that fails:
            the next run resumes from what storage has.
        """

    def cancel(self, *, retain: bool = False) -> None:
        """End the job now, without a checkpoint, and delete its state if the manifest's retention says so and not ``retain``.

        ``JobStatus.canceled`` says what became of it. Repeating it is fine; a job that has ended in another way stays as it is.
        """

    def rescale(self, parallelism: int, timeout_s: float) -> JobStatus:
        """Checkpoint, start slots and query again with ``parallelism`` (1..max_parallelism), and return once batches run again.

        ``JobStatus.last_rescale`` says how long the job was paused.
        """

    def rescale_plan(self, parallelism: int) -> RescalePlan:
        """Return the plan of `rescale`, in key groups and bytes; nothing is changed."""

    def memory(self) -> MemoryStatus:
        """Return the division of the slots' managed memory; raises ConflictError if it is not managed."""

    def tune_memory(self, change: MemoryChange, timeout_s: float) -> MemoryStatus:
        """Change how every slot divides its managed memory while batches run, and return once each slot that runs has done so.

        It holds for slots that are started later as well, and ends with this driver: the next start takes the manifest's split.

        Raises:
            InvalidInputError: The split does not work or exceeds what slots are sized for; nothing was changed.
            UnavailableError: A slot did not take it over in time; it does so with its next heartbeat.
        """

    def history(self) -> JobHistory:
        """The job's history since its first driver started, bounded; never blocks on storage or slots."""

    def metrics(self) -> list[MetricSample]:
        """All samples at this moment; samples of one name agree in kind and help."""

    def silence_s(self) -> float:
        """Seconds since the last heartbeat of any slot, or since slots were submitted; 0 if there are no slots."""

    def has_executors(self) -> bool:
        """Return whether Spark is connected to an executor; True if Spark cannot say so."""

    def wait(self, timeout_s: float | None) -> JobState:
        """Block until the state is final or ``timeout_s`` has passed (None: indefinitely); return the state then."""


def _bounded(text: str) -> str:
    """Leaves out the middle of a long text: it begins with the error, and ends with the cause."""
    half = _MESSAGE_MAX // 2
    return text if len(text) <= _MESSAGE_MAX else f"{text[:half]}\n...\n{text[-half:]}"
