"""Changes how a running job divides its managed memory: validates a change and distributes it to slots.

What is asked holds for this driver: a job that is started again divides its memory as the manifest says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from statefulspark.coordinator.controls import MemoryChange, MemoryStatus
from statefulspark.coordinator.slots.state import READY, Slot
from statefulspark.coordinator.waiting import wait_for
from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark.memory.tuning import MemoryTuning
from statefulspark.sizes import format_size


class MemoryTuner:
    """The split that slots of this job shall have. Thread-safe.

    Args:
        backend: Kind of the slots' stores.
        budget_bytes: What a slot's process is sized for; None when its native memory is not managed.
        write_buffer_ratio: The manifest's.
        high_prio_pool_ratio: The manifest's.
        arena_bytes: In what blocks write buffers take memory.
        process_bytes: What a slot's process is sized for with its Python part.
    """

    def __init__(
        self,
        *,
        backend: str,
        budget_bytes: int | None,
        write_buffer_ratio: float,
        high_prio_pool_ratio: float,
        arena_bytes: int,
        process_bytes: int,
    ) -> None:
        self.process_bytes = process_bytes
        self._arena_bytes = arena_bytes
        self._lock = threading.Lock()
        self._backend = backend
        self._budget_bytes = budget_bytes if backend == "rocksdb" else None
        self._tuning: MemoryTuning | None = None
        if self._budget_bytes is not None:
            self._tuning = MemoryTuning(
                revision=0,
                managed_bytes=self._budget_bytes,
                write_buffer_ratio=write_buffer_ratio,
                high_prio_pool_ratio=high_prio_pool_ratio,
            )

    @property
    def budget_bytes(self) -> int | None:
        """Native memory that a slot's process is sized for; None when nothing bounds it."""
        return self._budget_bytes

    @property
    def tuning(self) -> MemoryTuning | None:
        """The ratios by which slots divide their memory; None if there is nothing to divide."""
        return self._tuning

    def change(self, change: MemoryChange) -> MemoryTuning:
        """Decide on another split.

        Returns:
            The new revision, or the present one when nothing differs.

        Raises:
            ConflictError: The job's state is not in RocksDB, or its memory is not managed.
            InvalidInputError: The split does not work, or is more than a slot's process is sized for. Nothing was changed.
        """
        with self._lock:
            before = self._tuning
            if before is None or self._budget_bytes is None:
                raise ConflictError(self._nothing_to_tune())
            asked = MemoryTuning(
                revision=before.revision + 1,
                managed_bytes=before.managed_bytes if change.managed_bytes is None else change.managed_bytes,
                write_buffer_ratio=before.write_buffer_ratio if change.write_buffer_ratio is None else change.write_buffer_ratio,
                high_prio_pool_ratio=before.high_prio_pool_ratio if change.high_prio_pool_ratio is None else change.high_prio_pool_ratio,
            )
            if asked.managed_bytes > self._budget_bytes:
                raise InvalidInputError(
                    f"{format_size(asked.managed_bytes)} per slot is more than the {format_size(self._budget_bytes)} that its process is sized for",
                    field="managed_bytes",
                    remedy=f"Ask for at most {format_size(self._budget_bytes)}, or start the job with more managed memory",
                )
            after = asked.split()
            if after != before.split():
                self._tuning = asked
                return asked
            return before

    def status(self, slots: Iterable[Slot]) -> MemoryStatus:
        """Describe the present split, and which of ``slots`` have it.

        Raises:
            ConflictError: As in `change`.
        """
        tuning = self._tuning
        if tuning is None or self._budget_bytes is None:
            raise ConflictError(self._nothing_to_tune())
        split = tuning.split()
        return MemoryStatus(
            revision=tuning.revision,
            budget_bytes=self._budget_bytes,
            managed_bytes=tuning.managed_bytes,
            write_buffer_ratio=tuning.write_buffer_ratio,
            high_prio_pool_ratio=tuning.high_prio_pool_ratio,
            cache_bytes=split.cache_bytes,
            write_buffer_bytes=split.write_buffer_bytes,
            high_prio_bytes=split.high_prio_bytes,
            warnings=split.warnings(self._arena_bytes),
            slots=tuple(slot.index for slot in slots if _revision(slot) == tuning.revision),
        )

    def _nothing_to_tune(self) -> str:
        if self._backend != "rocksdb":
            return f"the {self._backend} backend has no managed memory to tune. Set spec.stateBackend.type: rocksdb"
        return "the job's native memory is not managed, so there is no split. Set spec.stateBackend.rocksdb.memory.managed: true"


def waits_for(slots: Iterable[Slot], revision: int) -> list[int]:
    """Return the slots that serve and have an older split; those that are being started are given the newest when they register."""
    return [slot.index for slot in slots if slot.state == READY and _revision(slot) < revision]


@dataclass(frozen=True, slots=True)
class RunningMemory:
    """The managed memory of a running job: what its driver shows and changes.

    Attributes:
        tuner: The split that slots shall have.
        slots: Returns the slots of the present parallelism.
    """

    tuner: MemoryTuner
    slots: Callable[[], Iterable[Slot]]

    def status(self) -> MemoryStatus:
        """Return the division of the slots' managed memory; see `MemoryTuner.status`."""
        return self.tuner.status(self.slots())

    def tune(self, change: MemoryChange, timeout_s: float, check_open: Callable[[], None]) -> MemoryStatus:
        """Change how slots divide their managed memory, and return once each slot that serves has applied it; see also `MemoryTuner.change`.

        Raises:
            UnavailableError: Some slots did not in time; they will with their next heartbeat.
            ClosedError: The job ended meanwhile.
        """
        revision = self.tuner.change(change).revision

        def behind() -> list[int]:
            return waits_for(self.slots(), revision)

        def late() -> str:
            indexes = behind()
            return (
                f"{'slot' if len(indexes) == 1 else 'slots'} {', '.join(map(str, indexes))} did not apply the split within {timeout_s:.0f} s;"
                f" {'it' if len(indexes) == 1 else 'they'} will at the next heartbeat"
            )

        wait_for(lambda: not behind(), timeout_s, check_open=check_open, late=late)
        return self.status()


def _revision(slot: Slot) -> int:
    memory = slot.report.memory if slot.report is not None else None
    return memory.tuning.revision if memory is not None and memory.tuning is not None else -1
