"""Requests and responses of the API: pydantic models with the descriptions and examples of its OpenAPI document.

They correspond to the data classes of ``controls``, and validate what crosses the trust boundary. Clients ignore unknown fields, so
adding fields does not need a new version of the API.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from statefulspark.api_server.models.rescale import RescaleModel
from statefulspark.api_server.operations import Operation, OperationKind, OperationState
from statefulspark.config.savepoints import SavepointFormat
from statefulspark.coordinator.controls import CheckpointInfo, JobState, JobStatus
from statefulspark.process.api.metrics import MetricKind

Milliseconds = Annotated[int, Field(description="Milliseconds since the epoch (UTC).", examples=[1_790_000_000_000])]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ErrorModel(_Answer):
    """Reason of a failure."""

    reason: str = Field(description="One word for programs.", examples=["InvalidInput", "Conflict", "Unavailable", "UserFunction"])
    message: str = Field(description="For people: names the field or object and the remedy.")


class FailingModel(_Answer):
    """Failures since the last committed batch of a job that runs on."""

    failures: int = Field(description="Consecutive failures, at least 1.", examples=[7])
    since_ms: Milliseconds
    error: ErrorModel = Field(description="The last one: its type and first sentence.")


class CancellationModel(_Answer):
    """The state of a job after its cancellation; its savepoints always stay."""

    deleted: bool = Field(description="True if checkpoints and changelogs were deleted (`retention.onCancellation: DELETE`).")
    problem: str | None = Field(default=None, description="Why they were not all deleted, although the manifest says DELETE.")


class ProblemModel(_Answer):
    """Body of every answer that is not a success."""

    error: ErrorModel


class MissingTableModel(_Answer):
    """A state that a canonical savepoint has as entries only; a restore has it nevertheless."""

    uid: str
    state: str
    reason: str = Field(description="Which value no column holds.")


class CheckpointModel(_Answer):
    """One completed checkpoint or savepoint."""

    id: int = Field(description="Number within the job.", examples=[17])
    kind: Literal["checkpoint", "savepoint"]
    path: str = Field(
        description="Folder that holds `_metadata`; give it to `statefulspark run --from`.", examples=["s3://bucket/job/chk-17"]
    )
    batch: int = Field(description="The state is that after this batch.", examples=[204])
    completed_ms: Milliseconds
    duration_ms: int = Field(description="From the trigger to the published metadata.", examples=[840])
    sync_ms: int = Field(description="Longest time for which a slot could not process rows.", examples=[12])
    size_bytes: int = Field(description="All files the checkpoint refers to.", examples=[1_073_741_824])
    uploaded_bytes: int = Field(description="Bytes that no earlier checkpoint had uploaded.", examples=[8_388_608])
    format: SavepointFormat = Field(default="native", description="`native`: in the format of the job's state backend.")
    without_table: list[MissingTableModel] = Field(default=[], description="States of a canonical savepoint that have no table.")


class SlotMemoryModel(_Answer):
    """Memory of a slot's process at its last heartbeat, in bytes; null if not managed."""

    rss_bytes: int = Field(description="Resident.", examples=[402_653_184])
    pss_bytes: int = Field(description="Proportional set size: pages shared with other processes by their share.")
    baseline_bytes: int = Field(description="Resident before the store was opened.")
    process_budget_bytes: int = Field(
        description="What the process is sized for, Python and managed memory; `pss_bytes` should stay below it.", examples=[318_767_104]
    )
    budget_bytes: int | None = Field(description="Managed memory that the process is sized for.", examples=[134_217_728])
    managed_bytes: int | None = Field(description="Managed memory that it may use now.", examples=[134_217_728])
    used_bytes: int | None = Field(description="Cached blocks, indexes, filters and write buffers.")
    cache_bytes: int | None = Field(description="Capacity of the block cache, read from RocksDB.")
    write_buffer_bytes: int | None = Field(description="Limit of all write buffers.")
    write_buffer_used_bytes: int | None
    revision: int | None = Field(description="Which split the slot has; see `GET /v1/memory`.", examples=[0])
    container_limit_bytes: int | None = Field(
        default=None, description="Limit of the container that it is in; null when nothing limits it."
    )
    container_peak_bytes: int | None = Field(
        default=None, description="Most that the container has used at once, where the kernel keeps it."
    )
    container_oom_kills: int | None = Field(
        default=None, description="Processes of the container that the kernel has ended for lack of memory.", examples=[0]
    )


class SlotRestoringModel(_Answer):
    """Progress of a slot's restore."""

    downloaded_bytes: int = Field(
        description="Of complete and verified files, with those that were still on the machine.", examples=[1_288_490_188]
    )
    total_bytes: int = Field(description="Of all files that it needs; opening them takes time too.", examples=[4_294_967_296])


class SlotModel(_Answer):
    """One slot and its contiguous range of key groups."""

    slot: int = Field(examples=[0])
    first: int = Field(description="First key group, inclusive.", examples=[0])
    last: int = Field(description="Last key group, inclusive.", examples=[63])
    state: str = Field(description="STARTING, RESTORING, RUNNING, LOST, or STOPPED once the job has ended.", examples=["RUNNING"])
    epoch: int = Field(description="Number of the incarnation; grows with each restart.", examples=[1])
    executor: str | None = Field(description="Spark's executor id.", examples=["1"])
    host: str | None = Field(examples=["10.1.2.3"])
    pid: int | None = Field(description="Process id on that host.", examples=[4711])
    restarts: int = Field(description="Times this slot was started again in this attempt.", examples=[0])
    rows_in: int = Field(
        default=0, description="Rows of all keyed steps in committed batches since this driver started, or the job was last rescaled in it."
    )
    store_bytes: int | None = Field(default=None, description="Live bytes of the store; null before the first heartbeat.")
    cache_hit_ratio: float | None = Field(
        default=None, description="Look-ups of state that the cache of decoded objects answered since the slot started, 0 to 1."
    )
    memory: SlotMemoryModel | None = None
    restoring: SlotRestoringModel | None = Field(
        default=None, description="Set while the state is RESTORING, from the slot's first report on."
    )


class BusyKeyGroupModel(_Answer):
    """One of the key groups with most rows."""

    key_group: int = Field(examples=[17])
    slot: int = Field(examples=[0])
    rows: int = Field(description="In the slot's window of its last one to two million rows.", examples=[120_000])


class SlotSpreadModel(_Answer):
    """Rows of a keyed step over the key groups of one slot, in the slot's window of its last one to two million rows."""

    slot: int = Field(examples=[0])
    rows_max: int = Field(description="Of the slot's fullest key group.", examples=[120_000])
    rows_mean: float = Field(description="Mean over the slot's key groups.", examples=[15_625.0])


class StepSkewModel(_Answer):
    """Skew of a keyed step's rows over key groups."""

    ratio: float = Field(description="Rows of the fullest key group by the mean; 1 is even.", examples=[3.2])
    top: list[BusyKeyGroupModel] = Field(description="The fullest key groups, the fullest first.")
    slots: list[SlotSpreadModel] = Field(default_factory=list, description="Of the slots that had rows.")


class PendingTimersModel(_Answer):
    """Timers of one keyed step that have not fired."""

    number: int | None = Field(description="Estimate; null while no slot has counted them.", examples=[2])
    next_event_ms: int | None = Field(description="Time of the first event-time timer, milliseconds since the epoch.")
    next_processing_ms: int | None = Field(description="Time of the first processing-time timer, milliseconds since the epoch.")


class PartitionBacklogModel(_Answer):
    """A partition of a topic, as Kafka's."""

    topic: str = Field(examples=["orders"])
    partition: str = Field(examples=["3"])
    rows: int = Field(description="Rows that it had and the last batch did not read.", examples=[900])


class LagModel(_Answer):
    """Sum over all sources, as of the last batch. null for a unit that no source reports."""

    rows: int | None = Field(description="Rows that the sources had and the last batch did not read.", examples=[1_204])
    files: int | None = Field(description="Files that are not read yet.")
    bytes: int | None = Field(description="Bytes that are not read yet.")
    unknown_sources: int = Field(description="Sources that report none of them, which the sums leave out.", examples=[0])
    at_ms: Milliseconds | None = Field(description="Time at which Spark planned the last batch; null if it is unknown.")


class SourceModel(_Answer):
    """A source of the query, as Spark reported it with the last batch."""

    description: str = Field(description="Spark's name of it, with where it reads.", examples=["KafkaV2[Subscribe[orders]]"])
    input_rows: int = Field(description="Rows of the last batch.", examples=[50_000])
    input_rows_per_second: float | None = Field(description="Rows that arrived, by Spark's estimate; null if it has none.")
    processed_rows_per_second: float | None = Field(description="Rows that the last batch processed per second of its time.")
    backlog_rows: int | None = Field(
        description="Rows that the source had and the last batch did not read; null if this source does not report it, as in the next two.",
        examples=[120_000],
    )
    backlog_files: int | None = Field(description="Files that are not read yet.")
    backlog_bytes: int | None = Field(description="Bytes that are not read yet.")
    partitions: list[PartitionBacklogModel] = Field(
        default_factory=list, description="Those with most rows first, at most 100 over all sources; empty for sources without partitions."
    )
    partitions_left_out: int = Field(default=0, description="Further partitions of the source.")
    metrics: dict[str, float] = Field(description="The source's own metrics, at most 20.", examples=[{"maxOffsetsBehindLatest": 60_000}])


class UserMetricModel(_Answer):
    """A metric that a function has registered, over the slots that have reported it. null stands for NaN and infinity."""

    name: str = Field(description="Dotted name.", examples=["orders.rejected"])
    kind: MetricKind
    value: float | None = Field(description="Sum over slots; of a distribution, the number of its values.", examples=[17])
    sum: float | None = Field(description="Of all values of a distribution.")
    min: float | None = Field(description="Least value of a distribution, or of a gauge over slots.")
    max: float | None = Field(description="Greatest value of a distribution, or of a gauge over slots.")
    slots: dict[int, float | None] = Field(description="Value by slot; empty if the status has no room for it.", examples=[{0: 9, 1: 8}])


class PendingSnapshotModel(_Answer):
    """The checkpoint or savepoint that is being taken."""

    id: int = Field(description="Number within the job.", examples=[18])
    kind: Literal["checkpoint", "savepoint"]
    started_ms: Milliseconds
    slots_done: int = Field(description="Slots that have uploaded their part.", examples=[1])
    slots: int = Field(examples=[2])
    uploaded_bytes: int = Field(default=0, description="Of files that storage has.", examples=[1_288_490_188])
    total_bytes: int = Field(
        default=0,
        description="Of all files that the slots upload, or copy within storage; grows while slots still write their snapshots.",
        examples=[4_294_967_296],
    )


class StatusModel(_Answer):
    """A consistent status of the job."""

    job_id: str = Field(examples=["turnaround-5f0c2a"])
    name: str = Field(examples=["turnaround"])
    state: JobState = Field(description="SUSPENDED, FAILED, FINISHED and CANCELED are final.")
    since_ms: Milliseconds
    parallelism: int = Field(description="Number of slots.", examples=[2])
    max_parallelism: int = Field(description="Number of key groups; fixed for the job's life.", examples=[128])
    attempt: int = Field(description="Number of this driver start in the job's lineage.", examples=[3])
    batch: int = Field(description="Last committed batch; -1 before the first.", examples=[204])
    input_rows: int = Field(
        description="Rows that reached the keyed steps in this driver; a row counts for each of them.", examples=[336_776]
    )
    output_rows: int = Field(description="Rows emitted by the keyed steps in this driver.", examples=[330_000])
    watermarks: dict[str, int | None] = Field(
        description="Per uid, milliseconds since the epoch; null before the first event.",
        examples=[{"turnaround": 1_357_041_600_000}],
    )
    timers: dict[str, PendingTimersModel] = Field(default_factory=dict, description="Per uid that has pending timers.")
    slots: list[SlotModel]
    skew: dict[str, StepSkewModel] = Field(default_factory=dict, description="Per uid that has had rows.")
    sources: list[SourceModel] = Field(default_factory=list, description="In Spark's order; empty before the first batch.")
    lag: LagModel | None = Field(default=None, description="Over all sources; null before the first batch.")
    user_metrics: dict[str, list[UserMetricModel]] = Field(
        default_factory=dict, description="Per uid whose function has registered any; at most 200 in all."
    )
    user_metrics_left_out: int = Field(default=0, description="Further metrics of functions, which `/metrics` lists.")
    last_checkpoint: CheckpointModel | None
    last_savepoint: CheckpointModel | None
    pending_snapshot: PendingSnapshotModel | None = Field(default=None, description="The checkpoint or savepoint that is being taken.")
    last_rescale: RescaleModel | None = Field(default=None, description="The last one in this driver.")
    restored_from: str | None = Field(description="What this attempt started from; null when it started empty.")
    failed_checkpoints: int = Field(description="Checkpoints of this driver that did not complete.", examples=[0])
    restarts: int = Field(default=0, description="Times the query was started again after a failure in this driver.", examples=[0])
    committed_batches: int = Field(default=0, description="Batches that this driver has committed.", examples=[17])
    idle: bool = Field(
        default=False, description="True if the query waits for new rows: no batch is running or to be repeated, and no timer is due."
    )
    failing: FailingModel | None = Field(
        default=None,
        description="Set from the first failure of a batch until one is committed; the job runs on under its restart strategy.",
    )
    error: ErrorModel | None = Field(description="Set when the state is FAILED.")
    canceled: CancellationModel | None = Field(default=None, description="Set when the state is CANCELED.")

    @classmethod
    def of(cls, status: JobStatus) -> Self:
        """Convert from the inside."""
        return cls.model_validate(status)


class CheckpointListModel(_Answer):
    """Retained checkpoints and this driver's savepoints, oldest first."""

    checkpoints: list[CheckpointModel]


class StopModel(_Answer):
    """The end of a job."""

    state: JobState
    checkpoint: CheckpointModel | None = Field(description="What the job can be restored from; null when there was no state to keep.")


class MemoryModel(_Answer):
    """Split of each slot's managed memory."""

    revision: int = Field(description="0 is the manifest's split; grows with each change in this driver.", examples=[1])
    budget_bytes: int = Field(description="What a slot's process is sized for; `managed_bytes` cannot be more.", examples=[134_217_728])
    managed_bytes: int = Field(description="Managed memory of each slot.", examples=[134_217_728])
    write_buffer_ratio: float = Field(description="Share of it for write buffers with their overshoot.", examples=[0.5])
    high_prio_pool_ratio: float = Field(description="Share of the cache for index and filter blocks.", examples=[0.1])
    cache_bytes: int = Field(description="Capacity of the block cache, write buffers included.", examples=[111_848_106])
    write_buffer_bytes: int = Field(description="Limit of all write buffers together.", examples=[44_739_242])
    high_prio_bytes: int = Field(description="Part of the cache for index and filter blocks.", examples=[11_184_810])
    warnings: list[str] = Field(description="What works badly with this split.")
    slots: list[int] = Field(description="Slots that have applied it; the others apply it with their next heartbeat, or when they start.")


class OperationModel(_Answer):
    """A request that is being carried out, or has been."""

    id: str = Field(examples=["9f1c6a0d2b3e4f50"])
    kind: OperationKind
    key: str | None = Field(default=None, description="The idempotency key it was asked for with.", examples=["upgrade-7-0"])
    state: OperationState
    started_ms: Milliseconds
    finished_ms: int | None = Field(description="Milliseconds since the epoch; null while running.")
    checkpoint: CheckpointModel | None = Field(default=None, description="Result of checkpoint, savepoint and stop.")
    status: StatusModel | None = Field(default=None, description="Result of rescale and cancel.")
    error: ErrorModel | None = Field(description="Set when the state is FAILED.")

    @classmethod
    def of(cls, operation: Operation) -> Self:
        """Convert from the inside."""
        result = operation.result
        return cls(
            id=operation.id,
            kind=operation.kind,
            key=operation.key,
            state=operation.state,
            started_ms=operation.started_ms,
            finished_ms=operation.finished_ms,
            checkpoint=CheckpointModel.model_validate(result) if isinstance(result, CheckpointInfo) else None,
            status=StatusModel.of(result) if isinstance(result, JobStatus) else None,
            error=ErrorModel.model_validate(operation.error) if operation.error else None,
        )


class OperationListModel(_Answer):
    """The operations the driver remembers, oldest first."""

    operations: list[OperationModel]


class HealthModel(_Answer):
    """The process answers."""

    status: Literal["ok"] = "ok"


class ReadyModel(_Answer):
    """True if batches are running."""

    ready: bool
    state: JobState


Target = Annotated[
    str | None,
    Field(
        description="URL below which the savepoint's folder is made; null for the manifest's savepoint directory.",
        min_length=1,
        max_length=4096,
        examples=["s3://bucket/savepoints"],
    ),
]


class SavepointRequest(_Request):
    """Target and format of a savepoint."""

    target: Target = None
    format: SavepointFormat = Field(
        default="native", description="`canonical` writes Parquet files that jobs with any state backend restore; it takes longer."
    )


class StopRequest(_Request):
    """How to end the job."""

    savepoint: bool | None = Field(
        default=None,
        description="true takes a savepoint first, false a checkpoint; null takes a savepoint if `target` or the manifest's savepointDir is set.",
    )
    target: Target = None
    drain: bool = Field(default=False, description="Advance the watermark to its end first, so that every event-time timer fires.")
    format: SavepointFormat | None = Field(
        default=None, description="Of the savepoint; null for `native`. `canonical` takes longer, during which the job processes nothing."
    )


class CancelRequest(_Request):
    """What becomes of the job's state."""

    retain: bool = Field(
        default=False, description="true keeps checkpoints and changelogs even if the manifest says `retention.onCancellation: DELETE`."
    )


class MemoryRequest(_Request):
    """Another split of each slot's managed memory; what is left out stays as it is."""

    managed_bytes: int | None = Field(default=None, ge=1, le=1 << 60, description="At most what slots are sized for.")
    write_buffer_ratio: float | None = Field(default=None, gt=0, lt=1, description="Between 0 and 1.", examples=[0.3])
    high_prio_pool_ratio: float | None = Field(
        default=None, ge=0, lt=1, description="From 0 to below 1; holds for table files that are opened from then on.", examples=[0.2]
    )
