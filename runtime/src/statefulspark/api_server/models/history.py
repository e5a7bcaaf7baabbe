"""The history of a job as the API shows it: models with the descriptions of its OpenAPI document."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from statefulspark.config.savepoints import SavepointFormat
from statefulspark.coordinator.history import EventKind, JobHistory
from statefulspark.job.history.samples import SAMPLES_MAX, selected

__all__ = ["SAMPLES_MAX", "HistoryModel"]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)


class HistorySampleModel(_Answer):
    """One interval. Rows, batches, seconds, counts, snapshots and failures are sums over it, all other numbers the greatest value in it."""

    from_ms: int = Field(description="Start, milliseconds since the epoch.", examples=[1_790_000_000_000])
    to_ms: int = Field(description="End, milliseconds since the epoch.", examples=[1_790_000_005_000])
    active_ms: int = Field(description="Time in the interval during which a driver ran; divide sums by it.", examples=[5_000])
    rows_in: int = Field(description="Rows that reached the keyed steps.", examples=[50_000])
    rows_out: int = Field(description="Rows that the keyed steps emitted.", examples=[48_000])
    batches: int = Field(description="Committed batches.", examples=[4])
    step_batches: int = Field(description="Batches of each keyed step in each slot; divide `parts` by it.", examples=[8])
    parts: dict[str, float] = Field(description="Seconds of these by part of a batch.", examples=[{"process": 1.5, "durable": 0.4}])
    slot_wait_s: float = Field(description="Seconds for which exchanges waited until their slot was ready.")
    send_wait_s: float = Field(description="Seconds for which exchanges waited until their slot took rows: back-pressure.")
    watermark_lag_ms: int | None = Field(description="Lag of the last watermark of the job; null before the first event.")
    states: dict[str, int] = Field(description="Estimated bytes of state by uid.", examples=[{"turnaround": 104_857_600}])
    slots: int = Field(examples=[2])
    memory_bytes: int = Field(description="Proportional set size of the largest slot.")
    memory_budget_bytes: int = Field(description="What each slot's process is sized for.")
    counts: dict[str, float] = Field(
        description="Increments of counters, meters and distributions (`.count` and `.sum`) of functions, at most 16 with the gauges.",
        examples=[{"turnaround: rejected": 17}],
    )
    gauges: dict[str, float] = Field(description="Greatest value of the gauges of functions.", examples=[{"turnaround: cached": 40}])
    backlog_rows: int | None = Field(description="Rows that the sources had and did not read; null if none reports it.")
    backlog_files: int | None = Field(description="Files that the sources had and did not read; null if none reports it.")
    skew: float = Field(description="Rows of the fullest key group by the mean; 0 before the first row.", examples=[1.4])
    checkpoints: int = Field(description="Completed checkpoints and savepoints.", examples=[1])
    failed_checkpoints: int = Field(description="Failed checkpoints.", examples=[0])
    failures: int = Field(description="Failures of the query and of slots.", examples=[0])


class HistorySnapshotModel(_Answer):
    """A checkpoint or savepoint that was completed, or that failed; then all but `ended_ms`, `kind`, `format` and `error` are null."""

    ended_ms: int = Field(description="Milliseconds since the epoch.", examples=[1_790_000_000_000])
    kind: Literal["checkpoint", "savepoint"]
    id: int | None = Field(examples=[17])
    batch: int | None = Field(examples=[204])
    duration_ms: int | None = Field(description="From the trigger to the published metadata.", examples=[840])
    sync_ms: int | None = Field(description="Longest time for which a slot could not process rows.", examples=[12])
    size_bytes: int | None = Field(description="All files it refers to.", examples=[1_073_741_824])
    uploaded_bytes: int | None = Field(description="Bytes that no earlier checkpoint had uploaded.", examples=[8_388_608])
    path: str | None
    format: SavepointFormat = Field(default="native", description="`canonical`: Parquet files. Of one that failed, what was wanted.")
    error: str | None = Field(description="Why it failed, at most 500 bytes.")


class HistoryEventModel(_Answer):
    """A failure, or a change of the job."""

    first_ms: int = Field(description="Milliseconds since the epoch.", examples=[1_790_000_000_000])
    last_ms: int = Field(description="Time of its last repetition.", examples=[1_790_000_000_000])
    kind: EventKind = Field(description="`return`: the job goes back to an earlier checkpoint.", examples=["query"])
    message: str = Field(description="The error with the user's traceback, at most 4096 bytes, or what changed.")
    reason: str = Field(description="One word for programs; empty if nothing failed.", examples=["UserFunction"])
    slot: int | None = Field(description="The slot that failed.", examples=[0])
    count: int = Field(description="How often it was repeated; the same failure in a row is one event.", examples=[1])


class HistoryModel(_Answer):
    """What the job has done since its first driver started; each list is bounded and begins with the oldest."""

    samples: list[HistorySampleModel] = Field(description="At most 600; those of recent intervals are fine, those of old ones coarse.")
    snapshots: list[HistorySnapshotModel] = Field(description="The latest 200 checkpoints and savepoints.")
    events: list[HistoryEventModel] = Field(description="The latest 100 failures and changes.")

    @classmethod
    def of(cls, history: JobHistory, *, since_ms: int, samples: int) -> Self:
        """Return what ended after a time, with at most so many samples."""
        return cls.model_validate(
            {
                "samples": selected(history.samples, since_ms=since_ms, most=samples),
                "snapshots": [one for one in history.snapshots if one.ended_ms > since_ms],
                "events": [one for one in history.events if one.last_ms > since_ms],
            }
        )
