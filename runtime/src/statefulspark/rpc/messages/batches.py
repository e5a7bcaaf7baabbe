"""Messages of a batch: exchange tasks and tick sources to the coordinator, exchange tasks to slots, slots to the coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.process.rows.value_times import NO_VALUES, InputValueTimes
from statefulspark.process.runner.broadcast_summary import BroadcastSummary
from statefulspark.rpc.codec import Message, RemoteError, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Message):
    """Not yet; the caller asks again."""

    reason: str
    """``paused``, ``timers``, ``storage``, or the state of the slot that the caller waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """Parameters of one run of a batch by one keyed step in one slot."""

    attempt: int
    """The driver's; changelogs are stored by it."""
    watermark_ms: int | None
    """Milliseconds since the epoch; None before the first event."""
    processing_time_ms: int
    expected: int
    """The last batch before it that changed the step in this slot."""
    operator_state: Literal["all", "changed"]
    """Operator state in the changelog: everything in the first batch of a distribution, changes after it."""
    changelog: bool = True
    """True if the slot makes the run's changes durable before it acknowledges the run."""
    inline_bytes: int = 0
    """Largest changelog that the slot sends with its acknowledgement, for the driver to store; 0 for none."""
    query: int = 0
    """Number of queries that the driver started before the one of this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginAnswer(Message):
    """The slot's position and the parameters of the batch."""

    location: str
    unix: str
    """Path of the slot's Unix socket on its own host."""
    epoch: int
    run: BatchRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(Request[BeginAnswer | Wait]):
    """An exchange task has rows of a batch for a slot; the first one begins the batch."""

    uid: str
    slot: int
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRequest(Message):
    """Opens the exchange of a task with a slot."""

    uid: str
    slot: int
    batch: int
    epoch: int
    run: BatchRun
    waited_s: float
    """Seconds for which the task waited for the slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeEnd(Message):
    """Follows the results of an exchange; without it they are not complete."""

    error: RemoteError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetrics:
    """Measurements of a slot while it processed a batch."""

    timers_fired: int
    timers_registered: int
    seconds: dict[str, float]
    """By part of the batch (`slot.step_metrics.PARTS`)."""
    exchange_seconds: dict[str, float]
    """Seconds for which the exchange waited: ``slot`` until it was ready, ``send`` until it took rows."""
    late_rows_dropped: int = 0
    """Rows that came too late and went nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge(Request[None]):
    """A slot has processed its rows of a batch, and its changelog is durable if the batch has changelogs, or here for the driver to store."""

    uid: str
    slot: int
    epoch: int
    batch: int
    changelog: ChangelogRef | None
    """None for a batch without changelogs, and while the driver has not stored it."""
    inline: bytes | None = None
    """The changelog, if the driver is to store it; None once it has."""
    changelog_bytes: int = 0
    """Size of the changelog; 0 for a batch without changelogs."""
    max_event_time_ms: int | None
    """Greatest event time of the batch's rows, of the first input if there are two."""
    second_max_event_time_ms: int | None = None
    """The same of the second input."""
    event_times_by_value: InputValueTimes = NO_VALUES
    """Greatest event times by value of ``watermark_by``, of each input."""
    event_timer_ms: int | None
    """Earliest event-time timer."""
    processing_timer_ms: int | None
    """Earliest processing-time timer."""
    rows_in: int
    """Keyed rows."""
    rows_out: int
    metrics: RunMetrics
    broadcast: BroadcastSummary | None = None
    """The rows of the broadcast stream; None for a step without one."""


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """The task and execution that computed a partition."""

    execution: str
    """Spark's number of the query execution (``spark.sql.execution.id``)."""
    partition: int
    """Partition of the task in its stage."""
    task: int
    """Spark's number of the task attempt; a retry has another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyPartition(Request[Wait | None]):
    """A partition of a batch had no rows."""

    uid: str
    batch: int
    run: PartitionRun


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUnreachable(Request[None]):
    """An exchange task cannot reach this incarnation of a slot."""

    slot: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Request[Wait | None]):
    """Spark has written the offsets of a batch and runs it once this is answered with None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickAnswer(Message):
    """The newest offset of a tick source."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(Request[TickAnswer | Wait]):
    """A tick source asks for its newest offset."""

    uid: str
    after: int
    """Its offset in the last batch."""
