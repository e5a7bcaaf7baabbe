"""The history of a job, as the driver API shows it and storage keeps it: data classes without behavior.

``job.history`` fills, bounds and stores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from statefulspark.config.savepoints import SavepointFormat

_CHECKED: Final[Mapping[str, Any]] = {"extra": "forbid", "strict": True}
"""Storage may hold anything under the history's name, so its decoder, which is pydantic, checks every member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySample:
    """Activity in one interval. Numbers of rows, batches, snapshots, failures, seconds and `counts` are sums, all others the greatest value.

    Rows of a backlog are no sums.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _CHECKED

    from_ms: int
    """Start of the interval; milliseconds since the epoch."""
    to_ms: int
    """End of the interval."""
    active_ms: int
    """Time in it during which a driver ran, by a clock that is never set."""
    rows_in: int = 0
    rows_out: int = 0
    batches: int = 0
    """Committed batches."""
    step_batches: int = 0
    """Committed batches of each keyed step in each slot."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds of these by part of a batch."""
    slot_wait_s: float = 0.0
    """Seconds for which exchanges waited until their slot was ready."""
    send_wait_s: float = 0.0
    """Seconds for which exchanges waited until their slot took rows: back-pressure."""
    watermark_lag_ms: int | None = None
    """Lag of the job's last watermark behind the clock; None before the first event and after the last."""
    states: Mapping[str, int] = field(default_factory=dict)
    """Estimated bytes of state by uid."""
    slots: int = 0
    memory_bytes: int = 0
    """Proportional set size of the largest slot."""
    memory_budget_bytes: int = 0
    """Size that each slot's process is sized for."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Increments in the interval of the counters, meters and distributions (``.count`` and ``.sum``) of functions, by ``uid: name``."""
    gauges: Mapping[str, float] = field(default_factory=dict)
    """Greatest value over slots of the gauges of functions, by ``uid: name``."""
    backlog_rows: int | None = None
    """Rows that the sources had and did not read, as far as they report it; None if none does, as in the next one."""
    backlog_files: int | None = None
    skew: float = 0.0
    """Rows of the fullest key group by the mean, of the keyed step with most skew; 0 before the first row."""
    checkpoints: int = 0
    """Completed checkpoints and savepoints."""
    failed_checkpoints: int = 0
    failures: int = 0
    """Failures of the query and of slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySnapshot:
    """One checkpoint or savepoint that was completed or has failed."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _CHECKED

    ended_ms: int
    kind: Literal["checkpoint", "savepoint"]
    id: int | None = None
    """None if it failed, as are all others but the error and the format."""
    batch: int | None = None
    duration_ms: int | None = None
    sync_ms: int | None = None
    size_bytes: int | None = None
    uploaded_bytes: int | None = None
    path: str | None = None
    format: SavepointFormat = "native"
    """The one that was wanted, of one that has failed too; of failures that releases before version 4 have stored, ``native``."""
    error: str | None = None
    """The failure; None if it was completed."""


EventKind = Literal["driver", "query", "slot", "rescale", "return", "state", "failed"]
"""``driver`` for a start, ``query`` and ``slot`` for failures after which they start again, ``return`` if the job goes back to an earlier
checkpoint, ``failed`` if the job ended with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """A failure, or a change of the job. A failure that repeats is one event."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _CHECKED

    first_ms: int
    last_ms: int
    """Time of its last repetition."""
    kind: EventKind
    message: str
    """The error with the user's traceback, or what changed."""
    reason: str = ""
    """One word for programs, such as ``UserFunction``; empty if nothing failed."""
    slot: int | None = None
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """A job's history since its first driver started, each list oldest first."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _CHECKED

    samples: tuple[HistorySample, ...] = ()
    snapshots: tuple[HistorySnapshot, ...] = ()
    events: tuple[HistoryEvent, ...] = ()
