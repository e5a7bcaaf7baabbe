"""Events: all that the core is told."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.coordinator.core.life import BatchParameters, Part, Spark
from statefulspark.rpc.messages.batches import PartitionRun


class Event:
    """Something that has happened."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Result(Event):
    """A result of a step; one whose number is not that of the running step comes too late."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Event):
    """A task has rows of a batch, or Spark has planned it: it may begin if it is new. That proves that Spark has committed the batch before."""

    batch: int
    spark: Spark
    paused: bool = False
    with_changelogs: bool = True
    """False if a batch that begins now runs without changelogs."""


@dataclass(frozen=True, slots=True)
class Looked(Event):
    """A part of the driver asks if a batch still runs."""

    spark: Spark


@dataclass(frozen=True, slots=True)
class CheckpointDue(Event):
    """A checkpoint may start while the query is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWritten(Result):
    """The record of a batch is durable, or may be."""

    parameters: BatchParameters
    is_certain: bool
    checkpoint: bool = False
    """True if a checkpoint of the batch before may start."""


@dataclass(frozen=True, slots=True)
class CheckpointStarted(Result):
    """A checkpoint has started, none was due, or it failed to start."""


@dataclass(frozen=True, slots=True)
class StepFailed(Result):
    """Storage or a slot did not answer; the step may be tried again."""


@dataclass(frozen=True, slots=True)
class LeftoversStored(Result):
    """The changelogs that the driver had yet to store are durable."""

    unstored: frozenset[Part]
    """Parts that came meanwhile, and are still left."""


@dataclass(frozen=True, slots=True)
class Searched(Result):
    """Storage says which attempt has completed the batch."""

    steps: frozenset[str] | None
    """Uids of its keyed steps; None if no attempt counts."""


@dataclass(frozen=True, slots=True)
class Adopted(Result):
    """The changelogs of another attempt count, or its state ids mean something else here."""

    is_done: bool


@dataclass(frozen=True, slots=True)
class PartitionBegun(Event):
    """A partition of the running batch has rows for this part."""

    part: Part


@dataclass(frozen=True, slots=True)
class PartitionEmpty(Event):
    """A partition had no rows."""

    uid: str
    batch: int
    run: PartitionRun


@dataclass(frozen=True, slots=True)
class Acknowledged(Event):
    """A slot has processed a batch for a step."""

    part: Part
    batch: int
    is_stored: bool
    """False if its changelog came with it, for the driver to store."""


@dataclass(frozen=True, slots=True)
class OrdersCompared(Event):
    """Slots have processed broadcast rows in these orders."""

    uid: str
    acknowledged: frozenset[Part]
    """All that still count."""
    is_disputed: bool


@dataclass(frozen=True, slots=True)
class Unproven(Event):
    """The driver is about to store changelogs, and asks what is left to store."""

    uid: str
    batch: int


@dataclass(frozen=True, slots=True)
class ProofsKept(Event):
    """Slots of a step had no rows, and that is durable, or is stored with the rest."""

    uid: str
    batch: int
    slots: frozenset[int]
    unstored: frozenset[Part] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupStored(Event):
    """The driver has stored changelogs of a batch."""

    batch: int
    unstored: frozenset[Part]
    """Parts that came meanwhile, and are still left."""


@dataclass(frozen=True, slots=True)
class QueryStarts(Event):
    """Another query is about to begin. It may skip the running batch, unless that makes a dry run."""

    spark: Spark


@dataclass(frozen=True, slots=True)
class MustGoBack(Event):
    """Query and slots are stopped, to continue from the last checkpoint."""

    planned: int
    """As in `Spark`."""


@dataclass(frozen=True, slots=True)
class WentBack(Result):
    """The job continues after an earlier batch."""

    committed: int
    again: BatchParameters | None


@dataclass(frozen=True, slots=True)
class Rescaled(Event):
    """All slots were replaced between two batches."""

    parallelism: int
