"""The events that a `TestingJob` takes between rows. Each one ends the batch of the rows before it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from statefulspark.process.adapters.function_adapters import AnyFunction


class Event(Enum):
    """Events without an argument; use the names in `statefulspark.testing`."""

    BATCH = "BATCH"
    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"
    DRAIN = "DRAIN"
    RETRY_BATCH = "RETRY_BATCH"
    KILL_DRIVER = "KILL_DRIVER"
    KILL_DRIVER_BEFORE_SINK_COMMIT = "KILL_DRIVER_BEFORE_SINK_COMMIT"
    KILL_DRIVER_BETWEEN_OUTPUTS = "KILL_DRIVER_BETWEEN_OUTPUTS"
    KILL_DRIVER_AFTER_SINK_COMMIT = "KILL_DRIVER_AFTER_SINK_COMMIT"
    PAUSE_DRIVER = "PAUSE_DRIVER"
    RESUME_DRIVER = "RESUME_DRIVER"
    DAMAGE_CHECKPOINT = "DAMAGE_CHECKPOINT"


BATCH = Event.BATCH
"""Ends a batch; the next rows are another one."""
CHECKPOINT = Event.CHECKPOINT
"""Takes a checkpoint."""
SAVEPOINT = Event.SAVEPOINT
"""Takes a savepoint, and adds its URL to `TestingJob.savepoints`."""
DRAIN = Event.DRAIN
"""Moves the watermark to the end of time, so that all event-time timers fire. No rows may follow."""
RETRY_BATCH = Event.RETRY_BATCH
"""Every task of the batch before it runs twice, as when a task fails after its slot is done, or a sink evaluates its rows twice."""
KILL_DRIVER = Event.KILL_DRIVER
"""The driver and all slots die between two batches; another driver starts."""
KILL_DRIVER_BEFORE_SINK_COMMIT = Event.KILL_DRIVER_BEFORE_SINK_COMMIT
"""They die when all slots have acknowledged the batch before it and the sink has not committed it."""
KILL_DRIVER_BETWEEN_OUTPUTS = Event.KILL_DRIVER_BETWEEN_OUTPUTS
"""They die when the main output has the batch before it and no side output has."""
KILL_DRIVER_AFTER_SINK_COMMIT = Event.KILL_DRIVER_AFTER_SINK_COMMIT
"""They die when the sink has committed the batch before it and Spark has not noted that."""
PAUSE_DRIVER = Event.PAUSE_DRIVER
"""The driver stops responding but does not die; another driver starts."""
RESUME_DRIVER = Event.RESUME_DRIVER
"""The paused driver wakes up and runs the rows that it has missed. The job must refuse it; the error is added to `TestingJob.errors`."""
DAMAGE_CHECKPOINT = Event.DAMAGE_CHECKPOINT
"""Truncates the metadata of the newest checkpoint in storage."""


@dataclass(frozen=True, slots=True)
class KILL_SLOT:  # noqa: N801  reads as the other events do
    """A slot dies and another incarnation starts.

    Args:
        slot: Its number, from 0.
        when: ``idle`` between two batches; otherwise in the batch before it: ``before_changelog`` when the slot has processed its rows,
            ``before_ack`` when its changelog is durable, or the driver has it (``changelog_inline_threshold``), ``after_ack`` when its task
            has ended.
    """

    slot: int
    when: Literal["idle", "before_changelog", "before_ack", "after_ack"] = "idle"


@dataclass(frozen=True, slots=True)
class FAIL_STORAGE:  # noqa: N801
    """The first ``writes`` writes of the batch before it fail, whether of the driver (batch records) or of slots (changelogs).

    Args:
        writes: At least 1.
        lost: ``request`` if nothing is written; ``answer`` if the object is written but the writer gets an error.
    """

    writes: int = 1
    lost: Literal["request", "answer"] = "request"


@dataclass(frozen=True, slots=True)
class RESCALE:
    """The running job goes on with another number of slots."""

    parallelism: int


@dataclass(frozen=True, slots=True)
class ADVANCE:
    """Processing time advances while the job runs, and the timers that are due fire.

    Args:
        ms: Milliseconds to advance by.
    """

    ms: int


@dataclass(frozen=True, slots=True)
class DOWNTIME:
    """The driver dies, and another one starts ``ms`` milliseconds of processing time later."""

    ms: int


@dataclass(frozen=True, slots=True)
class UPGRADE:
    """The driver dies and another one starts with new code, from the state of the last batch.

    Args:
        function: The new function.
        allow_non_restored_state: As in a job's manifest; without it a function that seems to have renamed a state is refused.
    """

    function: AnyFunction
    allow_non_restored_state: bool = False


@dataclass(frozen=True, slots=True)
class RESTORE_FROM_SAVEPOINT:  # noqa: N801
    """The job stops and another driver starts from the newest savepoint; it reads the rows since then again.

    Args:
        parallelism: Its number of slots. Defaults to the present one.
    """

    parallelism: int | None = None


AnyEvent = Event | KILL_SLOT | FAIL_STORAGE | RESCALE | ADVANCE | DOWNTIME | UPGRADE | RESTORE_FROM_SAVEPOINT
WITH_ARGUMENTS = (KILL_SLOT, FAIL_STORAGE, RESCALE, ADVANCE, DOWNTIME, UPGRADE, RESTORE_FROM_SAVEPOINT)
_IN_BATCH = frozenset(
    {
        Event.RETRY_BATCH,
        Event.KILL_DRIVER_BEFORE_SINK_COMMIT,
        Event.KILL_DRIVER_BETWEEN_OUTPUTS,
        Event.KILL_DRIVER_AFTER_SINK_COMMIT,
    }
)


def strikes_batch(event: AnyEvent) -> bool:
    """True if the event happens within the batch of the rows before it, False if it happens after that batch."""
    if isinstance(event, KILL_SLOT):
        return event.when != "idle"
    return isinstance(event, FAIL_STORAGE) or (isinstance(event, Event) and event in _IN_BATCH)
