"""Actions: what the core wants done. Those with a number are steps, whose result comes back as an event with that number."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.coordinator.core.life import BatchParameters


class Action:
    """Something that must be done."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Wait(Action):
    """Answer: ask again."""


@dataclass(frozen=True, slots=True)
class Refuse(Action):
    """Answer: the batch has ended."""

    batch: int


@dataclass(frozen=True, slots=True)
class WriteRecord(Action):
    """Make the record of a batch durable: of a batch that has begun before, with these parameters."""

    number: int
    batch: int
    parameters: BatchParameters | None


@dataclass(frozen=True, slots=True)
class StartCheckpoint(Action):
    """Start a checkpoint of the committed batch if one is due."""

    number: int


@dataclass(frozen=True, slots=True)
class Begin(Action):
    """Let the batch run."""

    parameters: BatchParameters


@dataclass(frozen=True, slots=True)
class StoreLeftovers(Action):
    """Store what the driver has yet to store of the running batch: storage failed, and the sink went on although a task had failed."""

    number: int
    batch: int


@dataclass(frozen=True, slots=True)
class Search(Action):
    """Look for the attempt that has completed the batch."""

    number: int
    batch: int


@dataclass(frozen=True, slots=True)
class Adopt(Action):
    """Take over the batch from the attempt that was found."""

    number: int
    parameters: BatchParameters
    undo: bool
    """True if slots must drop what they changed in it."""


@dataclass(frozen=True, slots=True)
class Commit(Action):
    """Count the running batch as committed."""

    batch: int


@dataclass(frozen=True, slots=True)
class PlanDryRun(Action):
    """Let the batch run again without the sink."""

    batch: int
    uids: tuple[str, ...]
    """Steps that have not processed it completely."""
    recovered: bool


@dataclass(frozen=True, slots=True)
class Fail(Action):
    """End the job: its query leaves out rows of these steps."""

    batch: int
    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeepProofs(Action):
    """Make durable that slots of a step had no rows; with a group, when that is stored."""

    batch: int
    uid: str
    slots: frozenset[int]
    grouped: bool


@dataclass(frozen=True, slots=True)
class StoreGroup(Action):
    """Store the changelogs of the batch that slots have sent."""

    batch: int


@dataclass(frozen=True, slots=True)
class ForgetCommit(Action):
    """Take back Spark's commit of the batch, so that it runs again."""

    batch: int


@dataclass(frozen=True, slots=True)
class ForgetPlans(Action):
    """Delete Spark's plans of the batches after this one, which never began."""

    after: int


@dataclass(frozen=True, slots=True)
class GoBack(Action):
    """Find the last state that is stored, and continue from it under numbers above ``used``."""

    number: int
    used: int
