"""Turns what the coordinator knows at two moments into a sample of the history. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from statefulspark.coordinator.controls import JobStatus
from statefulspark.coordinator.history import HistorySample
from statefulspark.coordinator.slots.state import Slot
from statefulspark.coordinator.view import CoordinatorView
from statefulspark.job.history.samples import SERIES_MAX, bounded_series, bounded_states, series_name
from statefulspark.process.api.metrics import UserMetric

_YEARS_MS = 1000 * 366 * 86_400_000
"""A watermark that is further from the clock is the beginning or the end of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counters of this driver at one moment; those of a driver that has just started are 0."""

    rows_in: int = 0
    rows_out: int = 0
    batches: int = 0
    step_batches: int = 0
    parts: Counter[str] = field(default_factory=Counter)
    """Seconds by part of a batch, in microseconds."""
    waits: Counter[str] = field(default_factory=Counter)
    """Seconds by what exchanges waited for, in microseconds."""
    checkpoints: int = 0
    failed_checkpoints: int = 0
    user: Mapping[tuple[str, int, int], float] = field(default_factory=dict)
    """Counts of functions by series, slot and epoch: each incarnation of a slot begins with 0."""


def counts_of(view: CoordinatorView) -> Counts:
    """Return the counters as of now."""
    parts: Counter[str] = Counter()
    waits: Counter[str] = Counter()
    for total in view.totals.values():
        parts.update({name: int(seconds * 1e6) for name, seconds in total.seconds.items()})
        waits.update({name: int(seconds * 1e6) for name, seconds in total.exchange_seconds.items()})
    return Counts(
        rows_in=view.rows_in,
        rows_out=view.rows_out,
        batches=view.commits,
        step_batches=sum(total.batches for total in view.totals.values()),
        parts=parts,
        waits=waits,
        checkpoints=sum(total.completed for total in view.snapshot_totals.values()),
        failed_checkpoints=view.failed_checkpoints,
        user=_user_counts(view),
    )


def _user_counts(view: CoordinatorView) -> dict[tuple[str, int, int], float]:
    found: dict[tuple[str, int, int], float] = {}
    for series, slot, metric in _user_series(view):
        if metric.kind != "gauge":
            for full, value in _counted(series, metric):
                found[full, slot.index, slot.epoch] = value
    return found


def _user_gauges(view: CoordinatorView) -> dict[str, float]:
    found: dict[str, float] = {}
    for series, _, metric in _user_series(view):
        if metric.kind == "gauge" and math.isfinite(metric.value):
            found[series] = max(metric.value, found.get(series, metric.value))
    return bounded_series(found)


def _user_series(view: CoordinatorView) -> Iterator[tuple[str, Slot, UserMetric]]:
    """Yield the metrics of functions of as many names as a sample has room for."""
    reported = [(slot, uid, step.user) for slot in view.slots if slot.report is not None for uid, step in slot.report.steps.items()]
    chosen = sorted({(uid, metric) for _, uid, metrics in reported for metric in metrics})[:SERIES_MAX]
    for uid, metric in chosen:
        series = series_name(uid, metric)
        yield from ((series, slot, metrics[metric]) for slot, of_uid, metrics in reported if of_uid == uid and metric in metrics)


def _counted(series: str, metric: UserMetric) -> Iterator[tuple[str, float]]:
    """Yield what grows of a metric that is no gauge: the mean of a distribution in an interval is that of its sum by that of its number."""
    if metric.kind == "distribution":
        yield f"{series}.count", metric.value
        yield f"{series}.sum", metric.sum
    else:
        yield series, metric.value


def _increments(before: Mapping[tuple[str, int, int], float], after: Mapping[tuple[str, int, int], float]) -> dict[str, float]:
    """Return how much each series has grown. One that has shrunk was counted down, or began again with a new copy of the function: 0."""
    found: dict[str, float] = {}
    for key, value in after.items():
        if math.isfinite(grown := value - before.get(key, 0.0)):
            found[key[0]] = found.get(key[0], 0.0) + max(0.0, grown)
    return bounded_series(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """When something happened."""

    from_ms: int
    to_ms: int
    active_ms: int


def sample_of(
    interval: Interval, before: Counts, after: Counts, view: CoordinatorView, status: JobStatus, *, failures: int
) -> HistorySample:
    """Return the sample of an interval.

    Args:
        interval: Its times.
        before: Counters at its start.
        after: Counters at its end.
        view: Of the coordinator, at its end.
        status: Of the job, at its end.
        failures: Of the query and of slots within it.
    """
    memories = [slot.memory for slot in status.slots if slot.memory is not None]
    parts, waits = after.parts - before.parts, after.waits - before.waits
    return HistorySample(
        from_ms=interval.from_ms,
        to_ms=interval.to_ms,
        active_ms=interval.active_ms,
        rows_in=max(0, after.rows_in - before.rows_in),
        rows_out=max(0, after.rows_out - before.rows_out),
        batches=max(0, after.batches - before.batches),
        step_batches=max(0, after.step_batches - before.step_batches),
        parts={name: microseconds / 1e6 for name, microseconds in parts.items()},
        slot_wait_s=waits["slot"] / 1e6,
        send_wait_s=waits["send"] / 1e6,
        watermark_lag_ms=_lag_ms(status, interval.to_ms),
        states=_state_bytes(view),
        slots=len(status.slots),
        memory_bytes=max((memory.pss_bytes for memory in memories), default=0),
        memory_budget_bytes=max((memory.process_budget_bytes for memory in memories), default=0),
        counts=_increments(before.user, after.user),
        gauges=_user_gauges(view),
        backlog_rows=_backlog(source.backlog_rows for source in status.sources),
        backlog_files=_backlog(source.backlog_files for source in status.sources),
        skew=max((skew.ratio for skew in status.skew.values()), default=0.0),
        checkpoints=max(0, after.checkpoints - before.checkpoints),
        failed_checkpoints=max(0, after.failed_checkpoints - before.failed_checkpoints),
        failures=failures,
    )


def _backlog(reported: Iterable[int | None]) -> int | None:
    known = [each for each in reported if each is not None]
    return sum(known) if known else None


def _lag_ms(status: JobStatus, now_ms: int) -> int | None:
    lags = (now_ms - watermark for watermark in status.watermarks.values() if watermark is not None)
    return max((max(0, lag) for lag in lags if abs(lag) < _YEARS_MS), default=None)


def _state_bytes(view: CoordinatorView) -> dict[str, int]:
    uids = {state.state_id: state.uid for state in view.states}
    found: Counter[str] = Counter()
    for slot in view.slots:
        for number, size in slot.report.states.items() if slot.report is not None else ():
            if number in uids:
                found[uids[number]] += size.size_bytes
    return bounded_states(found)
