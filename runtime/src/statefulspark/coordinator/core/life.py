"""Life: everything that decides which batch runs, and when it counts as committed. Immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from statefulspark.coordinator.core.empty_partitions import EmptyPartitions

Part: TypeAlias = tuple[str, int]
"""A keyed step in one slot: uid and number of the slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchParameters:
    """Parameters of a batch, fixed through all its retries."""

    batch: int
    watermarks: Mapping[str, int | None]
    """Per uid, milliseconds since the epoch; None before the first event."""
    processing_time_ms: int
    with_changelogs: bool = True
    """False if slots do not make durable what the batch changes, as checkpointing mode ``at-least-once`` lets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """Facts about the query's own files, as of one moment."""

    planned: int
    """Last batch whose offsets Spark has written; -1 for none."""
    committed: int
    """Last batch that Spark counts as committed; -1 for none."""
    has_state: bool = True
    """False if `Life.in_question` left no state of Spark's own steps, although the query has such steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A batch whose record is durable, until it is committed."""

    parameters: BatchParameters
    grouped: bool
    """True if the driver stores small changelogs. False in a batch that runs again: there, what an attempt has processed in part must leave a
    trace, because its sink may have read it, and no batch of an earlier attempt with other steps counts then."""
    computed: bool = False
    """True if the present query has computed a partition of it, so that its sink does not skip it."""
    disputed: bool = False
    """True if slots have processed its broadcast rows in different orders."""
    acknowledged: frozenset[Part] = frozenset()
    rowless: frozenset[Part] = frozenset()
    """Parts that had no rows, as far as that is durable or about to be stored with the rest."""
    unstored: frozenset[Part] = frozenset()
    """Of both, those whose changelog the driver has yet to store."""
    empty: EmptyPartitions = field(default_factory=EmptyPartitions)

    @property
    def batch(self) -> int:
        """Its number."""
        return self.parameters.batch


@dataclass(frozen=True, slots=True)
class Writing:
    """The record of a batch is written, and then a checkpoint of the batch before may start."""

    number: int
    parameters: BatchParameters | None = None
    """Set once the record is durable."""


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """A checkpoint starts while no batch runs."""

    number: int


@dataclass(frozen=True, slots=True)
class Ending:
    """A batch is about to be committed: the driver stores what is left of it, or looks for an attempt that has completed it."""

    number: int


@dataclass(frozen=True, slots=True)
class Adopting:
    """A batch is taken over from another attempt: no slot may begin or acknowledge it meanwhile."""

    number: int


@dataclass(frozen=True, slots=True)
class GoingBackwards:
    """The job returns to its last checkpoint."""

    number: int


Step: TypeAlias = Writing | Checkpointing | Ending | Adopting | GoingBackwards
"""Work outside that the life of batches waits for: one at a time, with a number that its result must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A batch that runs again for the sake of state alone, without the sink."""

    batch: int | None = None
    """The batch that needs it; None if there is none."""
    running: bool = False
    """True if the present query is the one without a sink."""
    last: int | None = None
    """The batch that had it last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """State of the core."""

    uids: frozenset[str]
    """The job's keyed steps."""
    parallelism: int
    group_changelogs: bool = False
    """True if slots send small changelogs for the driver to store."""
    committed: int = -1
    """Last batch that counts as committed."""
    again: BatchParameters | None = None
    """The uncommitted batch that began in an earlier attempt or query; it runs again with these parameters."""
    written: BatchParameters | None = None
    """The last batch whose record this attempt has written or tried to write."""
    running: Running | None = None
    dry: DryRun = DryRun()
    step: Step | None = None
    steps: int = 0
    """Number of the last step."""
    failed: bool = False
    """True if the job ends because its query leaves rows out."""
    queries: int = 0
    """Queries that have begun after the first."""

    @property
    def uncommitted(self) -> BatchParameters | None:
        """The batch that runs, or runs again; None between batches."""
        return self.again or (self.running.parameters if self.running is not None else None)

    @property
    def in_question(self) -> int | None:
        """The batch after which Spark's own steps may lack their state; None if there is none."""
        if self.dry.batch is not None:
            return self.dry.batch if self.dry.running else None
        return self.again.batch if self.again is not None else None

    @property
    def may_register(self) -> bool:
        """True if slots may get numbers: no batch is about to be committed, and the job does not go back."""
        return not isinstance(self.step, Ending | Adopting | GoingBackwards)

    @property
    def is_idle(self) -> bool:
        """True if no batch runs or is about to."""
        return self.step is None and self.uncommitted is None and self.dry.batch is None

    def is_running(self, batch: int) -> bool:
        """True if the batch runs."""
        return self.running is not None and self.running.batch == batch

    def accepts(self, batch: int) -> bool:
        """True if the batch runs, and neither another attempt's nor an earlier one is about to take its place."""
        return self.is_running(batch) and not isinstance(self.step, Adopting | GoingBackwards)

    def dry_run_due(self, spark: Spark) -> bool:
        """True if it is time for another query: the one without a sink, or after it the real one."""
        if self.dry.batch is None:
            return False
        return not self.dry.running or (spark.committed >= self.dry.batch and spark.has_state)

    def open_slots(self, uid: str) -> frozenset[int]:
        """Slots that have neither acknowledged the running batch nor are known to have no rows."""
        done = self.running.acknowledged | self.running.rowless if self.running is not None else frozenset()
        return frozenset(slot for slot in range(self.parallelism) if (uid, slot) not in done)

    @property
    def open_steps(self) -> list[str]:
        """Uids of the steps that some slot has not processed yet."""
        return sorted(uid for uid in self.uids if self.open_slots(uid))
