"""Models of the small objects next to the checkpoints: job identity, attempts and batch records."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from statefulspark.checkpoint.formats.digests import CHECKSUM_PATTERN, XXH128_VERSION, FileDigest, has_xxh128
from statefulspark.checkpoint.formats.documents import Document
from statefulspark.checkpoint.formats.pipeline import Pipeline
from statefulspark.keygroups import MAX_PARALLELISM_LIMIT, KeyGroupRange
from statefulspark.process.rows.value_times import InputValueTimes


class JobIdentity(Document):
    """Whose folder this is."""

    name: str = Field(min_length=1, max_length=255)
    max_parallelism: int = Field(ge=1, le=MAX_PARALLELISM_LIMIT)


class ChangelogRef(Document):
    """One durable changelog, as acknowledged by the slot that wrote it."""

    uid: str = Field(min_length=1, max_length=1024)
    slot: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    first: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    """First key group of the slot that wrote it."""
    last: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    """Last key group of the slot that wrote it, included."""
    batch: int = Field(ge=0)
    epoch: int = Field(ge=0)
    key: str = Field(min_length=1, max_length=1024)
    """Key of the object in the job folder."""
    size_bytes: int = Field(ge=0)
    """Size of the object."""
    checksum: str = Field(pattern=CHECKSUM_PATTERN)
    """Checksum of the object."""
    member: int | None = Field(default=None, ge=0)
    """Position of the changelog in the object, if that is a group (since version 13 of a batch record); left out otherwise."""

    @model_serializer(mode="wrap")
    def _without_absent_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Records without groups keep their bytes, which releases before version 13 read.
        fields: dict[str, Any] = handler(self)
        if self.member is None:
            del fields["member"]
        return fields

    @property
    def key_groups(self) -> KeyGroupRange:
        """Key groups of the slot that wrote it."""
        return KeyGroupRange(self.first, self.last)

    @property
    def digest(self) -> FileDigest:
        """Size and checksum."""
        return FileDigest(self.size_bytes, self.checksum)


class PackRef(Document):
    """One stored pack of Spark's state files."""

    key: str = Field(min_length=1, max_length=1024)
    """Key of the object in the job folder."""
    size_bytes: int = Field(ge=0)
    checksum: str = Field(pattern=CHECKSUM_PATTERN)

    @property
    def digest(self) -> FileDigest:
        """Size and checksum."""
        return FileDigest(self.size_bytes, self.checksum)


class BatchRecord(Document):
    """Written before a batch runs; everything a new driver needs to run it again with the same result."""

    later_fields = {"spark_state": 2, "pipeline": 3, "second_max_event_times": 4, "without_changelogs": 12, "event_times_by_value": 16}  # noqa: RUF012  a ClassVar of the base
    former_fields = frozenset({"epochs"})

    attempt: int = Field(ge=1)
    batch: int = Field(ge=0)
    previous: int = Field(ge=-1)
    """The batch before it, committed by now; -1 when this is the first."""
    processing_time_ms: int
    """Processing time of the batch, milliseconds since the epoch."""
    watermarks: dict[str, int | None] = Field(default_factory=dict)
    """Watermark that the batch uses per uid, milliseconds; None before the first row."""
    max_event_times: dict[str, int | None] = Field(default_factory=dict)
    """Largest event time per uid in all batches before this one, milliseconds; of steps with two inputs that of the first."""
    second_max_event_times: dict[str, int | None] = Field(default_factory=dict)
    """The same of the second input, per uid of a step whose second input has had a row; empty in versions 1 to 3."""
    event_times_by_value: dict[str, InputValueTimes] = Field(default_factory=dict)
    """The same of each input by value of ``watermark_by``, per uid of a step that has had rows with it; empty in versions 1 to 15."""
    epochs: tuple[int, ...] = ()
    """Incarnations of the slots, in records of earlier releases; not used."""
    acks: tuple[ChangelogRef, ...] = ()
    """Changelogs of the batch before."""
    files: bytes
    """Bundle of what is new in the local Spark checkpoint location since the record before."""
    spark_state: tuple[PackRef, ...] = ()
    """Packs of what is new in Spark's own state since the record before, oldest first: its state after the batch before."""
    pipeline: Pipeline | None = None
    """Keyed steps and sources of the query that planned the batch; None in versions 1 and 2. If its sources are not those of the record
    before, ``files`` has all of the location."""
    without_changelogs: Literal[True] | None = None
    """True if the batch runs without changelogs, as checkpointing mode ``at-least-once`` lets it: once it is committed, no state after it can be
    restored but that of a checkpoint."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.previous >= self.batch:
            raise ValueError("previous must be earlier than batch")
        if any(ack.batch != self.previous for ack in self.acks):
            raise ValueError("acks must be those of the previous batch")
        return self

    def least_version(self) -> int:
        """Version 13 brought groups of changelogs."""
        if has_xxh128([ack.checksum for ack in self.acks] + [pack.checksum for pack in self.spark_state]):
            return XXH128_VERSION
        return 13 if any(ack.member is not None for ack in self.acks) else 1


class AttemptClaim(Document):
    """Made by the one driver that got this number."""

    attempt: int = Field(ge=1)
    created_ms: int = Field(ge=0)
    nonce: str


class AttemptStart(Document):
    """The state that an attempt resumes from."""

    later_fields = {"claimed": 11}  # noqa: RUF012  a ClassVar of the base

    attempt: int = Field(ge=1)
    created_ms: int = Field(ge=0)
    origin: str | None = None
    """URL of the checkpoint or savepoint of another folder that the lineage began with."""
    checkpoints: tuple[str, ...] = ()
    """Keys of this folder's checkpoints in the lineage, newest first; all of them can be a base."""
    records: tuple[str, ...] = ()
    """Keys of the batch records in the lineage, in batch order, from the oldest that is stored."""
    claimed: str | None = None
    """URL of the savepoint that the job has claimed, and deletes after its first checkpoint; None in versions 1 to 10."""


class SavepointClaim(Document):
    """Stands beside the ``_metadata`` of a savepoint that a job has claimed. No other job deletes or claims the savepoint."""

    job: str = Field(min_length=1, max_length=4096)
    """URL of the job's folder."""
    created_ms: int = Field(ge=0)

    def least_version(self) -> int:
        """Version 11 brought claims."""
        return 11
