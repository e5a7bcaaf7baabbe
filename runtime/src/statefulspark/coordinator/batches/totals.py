"""Totals over the committed batches and the checkpoints of this driver. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from statefulspark.rpc.messages.batches import Acknowledge


@dataclass(slots=True)
class StepTotals:
    """Committed batches of one uid in the slot of one number; goes on when the slot is started again."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    timers_fired: int = 0
    timers_registered: int = 0
    late_rows_dropped: int = 0
    changelog_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """By part of a batch (``slot.step_metrics.PARTS``)."""
    exchange_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds for which exchanges waited: ``slot`` until it was ready, ``send`` until it took rows."""
    last_seconds: dict[str, float] = field(default_factory=dict)
    """Parts of the last batch."""

    def copy(self) -> StepTotals:
        """Return the totals as of now."""
        return replace(self, seconds=dict(self.seconds), exchange_seconds=dict(self.exchange_seconds), last_seconds=dict(self.last_seconds))

    def add(self, ack: Acknowledge) -> None:
        """Count the acknowledgement of a batch that is committed."""
        self.batches += 1
        self.rows_in += ack.rows_in
        self.rows_out += ack.rows_out
        self.timers_fired += ack.metrics.timers_fired
        self.timers_registered += ack.metrics.timers_registered
        self.late_rows_dropped += ack.metrics.late_rows_dropped
        self.changelog_bytes += ack.changelog_bytes
        self.last_seconds = dict(ack.metrics.seconds)
        _add(self.seconds, ack.metrics.seconds)
        _add(self.exchange_seconds, ack.metrics.exchange_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSnapshot:
    """One slot's part of a checkpoint."""

    sync_ms: float
    """For how long a batch waited for the flush and the hard links."""
    flush_ms: float
    upload_ms: float
    size_bytes: int
    uploaded_bytes: int


@dataclass(slots=True)
class SnapshotTotals:
    """Checkpoints, or savepoints, of this driver."""

    completed: int = 0
    failed: int = 0
    seconds: float = 0.0
    """Of the completed ones."""
    uploaded_bytes: int = 0
    handover_ms: float = 0.0
    """Of the last: for how long no batch could begin."""
    slots: dict[int, SlotSnapshot] = field(default_factory=dict)
    """Of the last."""


def _add(sums: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        sums[name] = sums.get(name, 0.0) + value
