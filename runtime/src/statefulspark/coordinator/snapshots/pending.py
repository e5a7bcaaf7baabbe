"""The checkpoint in progress: asks every slot for a snapshot at one batch boundary, collects them, publishes `_metadata`.

At most one runs at a time. It is triggered between two batches (or while the query is idle), so every slot's store holds exactly the
committed batch; the slots flush and upload while the next batch runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import structlog

from statefulspark import failpoints
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, FileRef, OperatorFile, SlotState
from statefulspark.checkpoint.write.inline import DEFAULT_LIMITS, InlineLimits
from statefulspark.coordinator.batches.totals import SlotSnapshot
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.ongoing_work import PendingSnapshot
from statefulspark.coordinator.slots.state import READY, Slot
from statefulspark.coordinator.snapshots.requests import SnapshotRequest
from statefulspark.errors import FencedError, InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.rpc.messages.slot_control import SavepointFolder, Snapshot
from statefulspark.rpc.messages.slots import SnapshotDone, SnapshotPart

_log = structlog.get_logger("statefulspark.checkpoints")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTimes:
    """When checkpoints are taken."""

    interval_s: float | None
    """Pause between starts of periodic checkpoints; None = none are taken by themselves."""
    timeout_s: float
    """Longest duration of a checkpoint."""
    min_pause_s: float = 0.0
    """Least pause between the end of one checkpoint and the start of the next."""


def _clocks() -> tuple[float, float]:
    """Return the time in seconds by the monotonic clock and by the wall clock."""
    return time.monotonic(), time.time()


class SlotLostError(UnavailableError):
    """A checkpoint failed because a slot was gone. The slot is started again by itself, so this says nothing about storage."""


@dataclass(slots=True, kw_only=True)
class PendingCheckpoint:
    """One running checkpoint."""

    checkpoint_id: int
    batch: int
    request: SnapshotRequest | None
    started_s: float
    created_ms: int
    frame: Mapping[str, Any]
    """Metadata besides the slots, fixed at the boundary."""
    savepoint_folder: str | None
    """Name of the folder when it is a savepoint."""
    nonce: str = field(default_factory=paths.new_nonce)
    """Part of the names of what is uploaded."""
    base_checkpoint_id: int | None
    """Complete checkpoint whose files the new one may name."""
    full: bool
    """True for a savepoint, and for each checkpoint of a job whose checkpoints are not incremental."""
    waiting: set[int]
    """Slots that have not answered, with their epochs in ``epochs``."""
    epochs: dict[int, int]
    states: dict[int, SlotState] = field(default_factory=dict)
    limits: InlineLimits = DEFAULT_LIMITS
    state_bytes: dict[int, dict[int, int]] = field(default_factory=dict)
    """Bytes of each state by id, of the slots whose entries are for ``_metadata``."""
    operator_state: dict[int, OperatorFile] = field(default_factory=dict)
    """Of the slots that have operator state."""
    sync_ms: float = 0.0
    """Longest time for which a batch waited for a slot's flush and hard links."""
    handover_ms: float = 0.0
    """Time until every slot had written the last batch's changes and begun its snapshot."""
    uploaded_bytes: int = 0
    parts: dict[int, SlotSnapshot] = field(default_factory=dict)
    """Each slot's report of its own part."""
    begun: tuple[float, float] = field(default_factory=_clocks)
    slots: tuple[Slot, ...] = ()
    """The slots that were asked; none while nothing can have been uploaded."""
    publishing: bool = False
    """True from the last slot's answer on, until it is certain that ``_metadata`` is not written; True forever if that is uncertain."""
    sealed: bool = False
    """True if ``_metadata`` may have been written."""

    @property
    def age_s(self) -> float:
        """Seconds since it was begun, by the clock that has moved further: one may stand still while the machine is suspended."""
        return max(now - then for now, then in zip(_clocks(), self.begun, strict=True))

    def take(self, slot: int, part: SnapshotPart) -> None:
        """Keep the part of a slot, but not the entries of a checkpoint that will be refused because they are too many: memory is bounded."""
        self.states[slot] = part.state
        if part.state_bytes is not None:
            self.state_bytes[slot] = part.state_bytes
            if sum(sum(sizes.values()) for sizes in self.state_bytes.values()) > self.limits.checkpoint_bytes:
                self.states = {each: state.model_copy(update={"inline": None}) for each, state in self.states.items()}
        if part.operator_state is not None:
            self.operator_state[slot] = part.operator_state
        self.parts[slot] = _slot_snapshot(part)
        self.sync_ms = max(self.sync_ms, part.sync_ms)
        self.uploaded_bytes += part.uploaded_bytes
        self.waiting.discard(slot)

    def seal(self) -> None:
        """``_metadata`` is about to be written."""
        self.sealed = True

    @property
    def savepoint(self) -> str | None:
        """Target when it is a savepoint."""
        return self.request.savepoint if self.request is not None else None

    @property
    def unpublished(self) -> bool:
        """True if its ``_metadata`` is not stored, because it is converted."""
        return self.request is not None and self.request.unpublished


class CheckpointCoordinator:
    """Runs one checkpoint at a time over all slots."""

    def __init__(
        self,
        *,
        call_slot: Callable[[Slot, Snapshot], None],
        publish: Callable[[PendingCheckpoint, tuple[SlotState, ...]], CheckpointInfo],
        finished: Callable[[PendingCheckpoint, CheckpointInfo | StatefulSparkError], None],
        timeout_s: float,
    ) -> None:
        """Prepare.

        Args:
            call_slot: sends a snapshot request to a slot.
            publish: writes the metadata (may raise).
            finished: told of every outcome, from a background thread.
            timeout_s: a checkpoint that takes longer is canceled.
        """
        self._call_slot = call_slot
        self._publish = publish
        self._finished = finished
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._current: PendingCheckpoint | None = None
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="snapshot")

    @property
    def running(self) -> bool:
        """True if a checkpoint is in progress."""
        return self._current is not None

    @property
    def current_id(self) -> int | None:
        """Number of the checkpoint in progress."""
        current = self._current
        return current.checkpoint_id if current is not None else None

    def pending(self, slots: Iterable[Slot] = ()) -> PendingSnapshot | None:
        """Progress of the current checkpoint, with the uploads that the slots have reported."""
        current = self._current
        if current is None:
            return None
        uploads = [
            slot.report.uploading
            for slot in slots
            if slot.report is not None and slot.report.uploading is not None and slot.index in current.waiting
        ]
        uploads = [upload for upload in uploads if upload.checkpoint_id == current.checkpoint_id]
        return PendingSnapshot(
            id=current.checkpoint_id,
            kind="checkpoint" if current.savepoint is None else "savepoint",
            started_ms=current.created_ms,
            slots_done=len(current.epochs) - len(current.waiting),
            slots=len(current.epochs),
            uploaded_bytes=current.uploaded_bytes + sum(upload.uploaded_bytes for upload in uploads),
            total_bytes=current.uploaded_bytes + sum(upload.total_bytes for upload in uploads),
        )

    def start(self, progress: PendingCheckpoint, slots: list[Slot], expected: Mapping[int, Mapping[str, int]]) -> None:
        """Ask every slot; returns when each has settled at the boundary, so that the next batch may run.

        Args:
            progress: the new checkpoint.
            slots: all slots.
            expected: per slot, the last batch per uid that its store must contain.
        """
        with self._lock:
            self._current = progress
        if any(slot.state != READY for slot in slots):
            self._end(progress, SlotLostError("a slot is starting; the checkpoint will be retried"))
            return

        progress.slots = tuple(slots)
        started = time.monotonic()

        def ask(slot: Slot) -> None:
            request = Snapshot(
                epoch=slot.epoch,
                checkpoint_id=progress.checkpoint_id,
                batch=progress.batch,
                expected=dict(expected[slot.index]),
                savepoint=_savepoint(progress),
                base_checkpoint_id=progress.base_checkpoint_id,
                full=progress.full,
                nonce=progress.nonce,
            )
            self._call_slot(slot, request)

        try:
            list(self._pool.map(ask, slots))
            progress.handover_ms = (time.monotonic() - started) * 1000
        except (UnavailableError, FencedError) as error:  # the slot is gone, or another incarnation is coming
            self._end(progress, SlotLostError(str(error)), unless_publishing=True)
        except StatefulSparkError as error:
            self._end(progress, error, unless_publishing=True)

    def slot_done(self, done: SnapshotDone) -> None:
        """A slot's background part has ended; the last one publishes."""
        with self._lock:
            progress = self._current
            if progress is None or done.checkpoint_id != progress.checkpoint_id or progress.epochs.get(done.slot) != done.epoch:
                return
            part = done.part
            if part is not None:
                progress.take(done.slot, part)
                if progress.waiting:
                    return
                progress.publishing = True
        if part is None:
            message = f"slot {done.slot}: {done.error}"
            self._end(progress, InvalidInputError(message) if done.refused else UnavailableError(message))
        else:
            self._pool.submit(self._complete, progress)

    def _complete(self, progress: PendingCheckpoint) -> None:
        try:
            failpoints.reach("driver.checkpoint.collected")
            info = self._publish(progress, tuple(progress.states[slot] for slot in sorted(progress.states)))
            failpoints.reach("driver.checkpoint.published")
        except StatefulSparkError as error:
            progress.publishing = progress.sealed
            self._end(progress, error)
        except Exception as error:  # noqa: BLE001  a checkpoint that fails must not hang
            progress.publishing = progress.sealed
            self._end(progress, UnavailableError(f"{type(error).__name__}: {error}"))
        else:
            self._end(progress, info)

    def expire(self, *, gone: Mapping[int, int] | None = None) -> None:
        """Cancel a checkpoint that takes too long, or one of whose slots has another epoch by now.

        One that is being published is left to `PendingCheckpoint.age_s`: its files must not be deleted while ``_metadata`` may appear.
        """
        progress = self._current
        if progress is None:
            return
        if time.monotonic() - progress.started_s > self._timeout_s:
            late = UnavailableError(f"checkpoint {progress.checkpoint_id} took longer than {self._timeout_s:.0f} s")
            self._end(progress, late, unless_publishing=True)
        elif gone is not None and any(gone.get(slot) != epoch for slot, epoch in progress.epochs.items() if slot in progress.waiting):
            self._end(progress, SlotLostError("a slot was lost while it took its snapshot"), unless_publishing=True)

    def abandon(self) -> bool:
        """Cancel the checkpoint in progress, because the slots that take it are stopped. False if it is being published."""
        progress = self._current
        if progress is not None:
            self._end(progress, SlotLostError("a slot was lost; the job goes back to its last checkpoint"), unless_publishing=True)
        return not self.running

    def _end(self, progress: PendingCheckpoint, outcome: CheckpointInfo | StatefulSparkError, *, unless_publishing: bool = False) -> None:
        with self._lock:
            if self._current is not progress or (unless_publishing and progress.publishing):
                return
            self._current = None
        if isinstance(outcome, StatefulSparkError):
            _log.warning("checkpoint failed", id=progress.checkpoint_id, error=str(outcome)[:300])
        self._finished(progress, outcome)

    def close(self) -> None:
        """Forget the checkpoint in progress."""
        progress = self._current
        if progress is not None:
            self._end(progress, FencedError("the job is stopping"))
        self._pool.shutdown(wait=False, cancel_futures=True)


def _savepoint(progress: PendingCheckpoint) -> SavepointFolder | None:
    if progress.savepoint is None or progress.savepoint_folder is None:
        return None
    return SavepointFolder(url=progress.savepoint, name=progress.savepoint_folder)


def _files(part: SnapshotPart) -> tuple[FileRef, ...]:
    return part.state.files if part.operator_state is None else (*part.state.files, part.operator_state)


def _slot_snapshot(part: SnapshotPart) -> SlotSnapshot:
    return SlotSnapshot(
        sync_ms=part.sync_ms,
        flush_ms=part.flush_ms,
        upload_ms=part.upload_ms,
        size_bytes=sum(ref.size_bytes for ref in _files(part)) + (part.state.inline.size_bytes if part.state.inline is not None else 0),
        uploaded_bytes=part.uploaded_bytes,
    )


def info_of(metadata: CheckpointMetadata, path: str, *, sync_ms: float, uploaded_bytes: int) -> CheckpointInfo:
    """Describe a published checkpoint."""
    unique: dict[str, FileRef] = {ref.path: ref for ref in metadata.files()}
    return CheckpointInfo(
        id=metadata.checkpoint_id,
        kind=metadata.kind,
        path=path,
        batch=metadata.batch,
        completed_ms=metadata.created_ms + metadata.duration_ms,
        duration_ms=metadata.duration_ms,
        sync_ms=int(sync_ms),
        size_bytes=sum(ref.size_bytes for ref in unique.values()) + metadata.inline_bytes,
        uploaded_bytes=uploaded_bytes,
    )
