"""The driver's requests to a slot. Each names the incarnation (epoch) that it is meant for; another one refuses it."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.rpc.codec import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Request[None]):
    """Asks this incarnation for an answer; an exchange task sends it before rows."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Request[None]):
    """End in good order."""

    epoch: int
    keep_files: bool = False
    """True if other slots of the job follow, which may link the slot's files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextBatch:
    """The facts of a batch that are known before its rows come."""

    watermarks_ms: dict[str, int | None]
    """By uid, in milliseconds since the epoch; None before the first event."""
    processing_time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle(Request[None]):
    """Write what committed batches changed, and read what the next one will need, unless a batch or a snapshot is in the way."""

    epoch: int
    expected: dict[str, int]
    """The last committed batch per uid that changed it in this slot."""
    next_batch: NextBatch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo(Request[None]):
    """Drop what ``batch`` changed: changelogs of another attempt count."""

    epoch: int
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointFolder:
    """Destination of a savepoint."""

    url: str
    """The folder above it."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Request[None]):
    """Take a snapshot of the committed state; answered when it has begun."""

    epoch: int
    checkpoint_id: int
    batch: int
    expected: dict[str, int]
    """The last committed batch per uid that changed it in this slot."""
    nonce: str
    """Part of the names of what is uploaded, so that the coordinator can delete it if the snapshot is canceled."""
    savepoint: SavepointFolder | None
    """None for a checkpoint."""
    base_checkpoint_id: int | None
    """Complete checkpoint whose files the new one may name; None: upload everything."""
    full: bool
    """True for a full snapshot, which leaves out what has expired of states with ``cleanup_full_snapshot``; those of stores in memory are always full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSnapshot(Request[None]):
    """End the snapshot of a checkpoint that the coordinator has canceled, and refuse to begin it or an earlier one.

    Answered when its uploads have ended, or after a few seconds.
    """

    epoch: int
    checkpoint_id: int
