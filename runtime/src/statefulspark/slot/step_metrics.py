"""Counters of one keyed step in one slot: where a batch's time goes, and how its rows spread over key groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa

from statefulspark.process.api.metrics import MetricGroup, UserMetric
from statefulspark.process.rows.key_group_rows import KeyGroupRows
from statefulspark.process.rows.reserved_columns import KEY_HASH
from statefulspark.rpc.messages.heartbeat import StepReport
from statefulspark.state.backend import KeyedStateBackend

TOP_KEY_GROUPS: Final = 5
"""Number of the fullest key groups that a slot reports per uid."""
USER_METRICS_MAX: Final = 100
"""Number of a function's metrics that are reported per uid and slot; more are left out, in order of registration."""
USER_METRIC_NAME_MAX: Final = 200
"""Characters of the name of such a metric that are reported."""

PARTS: Final = ("begin", "input", "process", "output", "encode", "durable")
"""Parts of a batch's time in a slot: bringing the state to its start, waiting for rows, sorting and calling the function,
waiting for the exchange to take results, encoding what changed, making the changelog durable."""


class BatchClock:
    """Splits the time of one batch; what is in no other part is ``process``. Used by one thread."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._started = time.monotonic()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside as ``name``."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] += time.monotonic() - started

    def waits(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass rows on and count the time until each comes as ``input``."""
        while True:
            with self.part("input"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def seconds(self) -> dict[str, float]:
        """Return the parts; their sum is the time since this was made."""
        spent = time.monotonic() - self._started
        others = sum(seconds for name, seconds in self._seconds.items() if name != "process")
        return {**self._seconds, "process": max(0.0, spent - others)}


def counted(batches: Iterator[pa.RecordBatch], rows: KeyGroupRows) -> Iterator[pa.RecordBatch]:
    """Pass rows on and count them by key group; tick rows have no key."""
    for batch in batches:
        hashes = batch.column(KEY_HASH)
        rows.add((hashes.drop_null() if hashes.null_count else hashes).to_numpy(zero_copy_only=False))
        yield batch


def user_metrics(group: MetricGroup) -> dict[str, UserMetric]:
    """Return the metrics that a function has registered, bounded in number and length of names.

    Names and values are the user's, so none of them may keep the slot from reporting.
    """
    found: dict[str, UserMetric] = {}
    for name, metric in group.collect():
        if len(found) == USER_METRICS_MAX:
            break
        with suppress(Exception):
            found[name[:USER_METRIC_NAME_MAX].encode(errors="replace").decode()] = UserMetric(
                kind=metric.kind,
                value=float(metric.value),
                sum=float(metric.sum),
                min=None if metric.min is None else float(metric.min),
                max=None if metric.max is None else float(metric.max),
            )
    return found


def step_report(backend: KeyedStateBackend, rows: KeyGroupRows, user: dict[str, UserMetric]) -> StepReport:
    """Return a slot's report of a keyed step."""
    cleanup = backend.cleanup_report()
    return StepReport(
        caches=backend.cache_lookups(),
        key_groups=rows.spread(TOP_KEY_GROUPS),
        user=user,
        expired=cleanup.expired,
        cleanup_seconds=cleanup.seconds,
        cleanup_lag=cleanup.lag,
        cleanup_due_ms=cleanup.due_ms,
    )
