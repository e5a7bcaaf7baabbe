"""Lineage: what an attempt resumes from."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats.pipeline import Pipeline
from statefulspark.checkpoint.formats.records import AttemptClaim, BatchRecord, ChangelogRef
from statefulspark.checkpoint.lineage.rewind import is_jump


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The checkpoint and batch records that make up the job's state."""

    attempt: int
    """Attempt that it describes; 0 for a job that never started."""
    claim: AttemptClaim | None = None
    """This driver's claim of the attempt; None if no driver has begun the attempt with it."""
    since: int = 1
    """The oldest attempt that may have run a batch of it."""
    base: StoredCheckpoint | None
    """Checkpoint to start from; None for empty state."""
    records: tuple[BatchRecord, ...]
    """Records of the batches after the base, in batch order."""
    record_keys: tuple[str, ...]
    """Keys of all stored records of the lineage, in batch order; also those that a base further back would need."""
    checkpoints: tuple[str, ...]
    """Keys of this folder's checkpoints in the lineage, newest first."""
    origin: str | None = None
    """URL of the checkpoint or savepoint of another folder that the lineage began with."""
    copied_from: str | None = None
    """URL of the checkpoint or savepoint that the base was copied from, if this attempt was started from one."""
    claimed: str | None = None
    """URL of the savepoint that the job has claimed (claim mode ``CLAIM``) and may not have deleted yet."""
    problems: tuple[str, ...] = ()
    """Reasons why newer checkpoints were skipped."""

    @property
    def ends_with_jump(self) -> bool:
        """True if no batch has begun since the job went back."""
        return bool(self.records) and is_jump(self.records[-1])

    @property
    def uncommitted_batch(self) -> int | None:
        """Batch that runs again first, None when there is none. That of a jump has run."""
        return self.records[-1].batch if self.records else None

    @property
    def last_committed_in_spark(self) -> int:
        """Last batch that Spark counts as done when the attempt starts, -1 for none."""
        if not self.records:
            return self.base.metadata.batch if self.base else -1
        return self.records[-1].batch - (not is_jump(self.records[-1]))

    @property
    def committed_batch(self) -> int:
        """Last batch that counts as done, -1 for none."""
        if self.records:
            return self.records[-1].previous
        return self.base.metadata.batch if self.base else -1

    @property
    def pipeline(self) -> Pipeline | None:
        """The one that wrote the newest record, or the base; None if there is none, or it was written before pipelines were stored."""
        if self.records:
            return self.records[-1].pipeline
        return self.base.metadata.pipeline if self.base is not None else None

    @property
    def changelogs(self) -> tuple[ChangelogRef, ...]:
        """Changelogs to apply to the base, in batch order, up to the last committed batch."""
        after = self.base.metadata.replay_after if self.base else -1
        return tuple(ack for record in self.records for ack in record.acks if ack.batch > after)
