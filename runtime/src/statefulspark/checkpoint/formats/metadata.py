"""The model of ``_metadata``: everything a checkpoint consists of.

Every path is relative to the folder of ``_metadata``, so a job folder or a savepoint can be moved or copied as a whole.
The coordinator writes it once, after every slot has acknowledged its part. A checkpoint without it does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, Self

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from statefulspark.checkpoint.formats.digests import CHECKSUM_PATTERN, XXH128_VERSION, FileDigest, digest_bytes, has_xxh128
from statefulspark.checkpoint.formats.documents import Document, decode_document, encode_document
from statefulspark.checkpoint.formats.pipeline import Pipeline
from statefulspark.errors import InternalError
from statefulspark.keygroups import MAX_PARALLELISM_LIMIT, KeyGroupRange
from statefulspark.process.rows.value_times import InputValueTimes
from statefulspark.state.encoding.entries import CANONICAL, HEAP_TIMERS_FILE, PARQUET_ENTRIES_FILE
from statefulspark.state.encoding.layout import has_joint_sessions, is_segmented
from statefulspark.state.operator.entries import describes_broadcast
from statefulspark.state.store.own_backend import is_own_backend

METADATA_NAME = "_metadata"
"""Name of the object that makes a folder a checkpoint."""

INLINE_BYTES_MAX: Final = 33 << 20
"""Most bytes of a slot's entries in ``_metadata``: in base64 they fit one message. `InlineLimits` is lower."""

CheckpointKind = Literal["checkpoint", "savepoint"]


class FileRef(Document):
    """One immutable stored file."""

    name: str = Field(min_length=1, max_length=255, pattern=r"^[^/\\\x00]+$")
    """File name the store opens it by."""
    path: str = Field(min_length=1, max_length=1024)
    """Relative to the folder of ``_metadata``; ``../shared/...`` for a file that several checkpoints use."""
    size_bytes: int = Field(ge=0)
    checksum: str = Field(pattern=CHECKSUM_PATTERN)

    @field_validator("name", "path")
    @classmethod
    def _refuse_escapes(cls, value: str) -> str:
        inner = value.removeprefix("../")
        if value.startswith("/") or any(part in ("", ".", "..") for part in inner.split("/")):
            raise ValueError("must be a relative path inside the checkpoint or beside it")
        return value

    @property
    def digest(self) -> FileDigest:
        """Size and checksum."""
        return FileDigest(self.size_bytes, self.checksum)


class OperatorFile(FileRef):
    """The operator state of one slot, of all its steps."""

    slot: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)


class TableFile(FileRef):
    """Rows of a state, in a Parquet file with columns of the state's types. Of operator state one file has all rows."""

    uid: str = Field(min_length=1, max_length=1024)
    state: str = Field(min_length=1)
    """Name of the state."""
    first: int | None = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    """First key group whose rows it has; None for operator state."""
    last: int | None = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    """Last key group, included; None for operator state."""
    rows: int = Field(ge=0)


class InlineEntries(Document):
    """The entries of a slot within ``_metadata``, in place of files: the bytes of a file ``entries``."""

    size_bytes: int = Field(ge=0, le=INLINE_BYTES_MAX)
    checksum: str = Field(pattern=CHECKSUM_PATTERN)
    data: bytes = Field(max_length=INLINE_BYTES_MAX)
    """Empty, never in ``_metadata``, where the process that holds the document does not need the entries."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.data and len(self.data) != self.size_bytes:
            raise ValueError("data does not have size_bytes")
        return self

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Return the part with these bytes."""
        digest = digest_bytes(data)
        return cls(size_bytes=digest.size_bytes, checksum=digest.checksum, data=data)

    @property
    def digest(self) -> FileDigest:
        """Size and checksum."""
        return FileDigest(self.size_bytes, self.checksum)


class SlotState(Document):
    """The store of one slot."""

    slot: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    first: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    """First key group of the slot."""
    last: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    """Last key group of the slot, included."""
    backend: str = Field(min_length=1, max_length=512)
    """Kind of store that opens the files: memory, filesystem, rocksdb, or the name of a class (since version 4); canonical if it is no store's but
    the file `PARQUET_ENTRIES_FILE`, from which a store of any kind is filled (since version 9)."""
    shared: tuple[FileRef, ...] = ()
    """Files that other checkpoints may use too."""
    private: tuple[FileRef, ...] = ()
    """Files of this checkpoint alone."""
    inline: InlineEntries | None = None
    """The entries, if the slot has no files (since version 7); left out otherwise."""
    operator_batches: dict[str, int] = Field(default_factory=dict)
    """Last batch contained in the store, per uid; -1 before its first."""
    heap_timers: bool = False
    """True if one of RocksDB's files is ``heap-timers``, which is no file of RocksDB's (since version 8); left out otherwise."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.last < self.first:
            raise ValueError("last must not be less than first")
        names = [file.name for file in self.files]
        if len(set(names)) != len(names):
            raise ValueError("two files have one name")
        if self.heap_timers != (self.backend == "rocksdb" and HEAP_TIMERS_FILE in names):
            raise ValueError("heap_timers does not agree with the files")
        if self.inline is not None and names:
            raise ValueError("the slot has both files and inline entries")
        if self.is_canonical and (self.shared or names != [PARQUET_ENTRIES_FILE]):
            raise ValueError(f"a canonical slot has the file {PARQUET_ENTRIES_FILE} alone")
        return self

    @model_serializer(mode="wrap")
    def _without_absent_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Documents without them keep their bytes, which releases before versions 7 and 8 read.
        fields: dict[str, Any] = handler(self)
        if self.inline is None:
            del fields["inline"]
        if not self.heap_timers:
            del fields["heap_timers"]
        return fields

    @property
    def files(self) -> tuple[FileRef, ...]:
        """All files of the store."""
        return self.shared + self.private

    @property
    def is_canonical(self) -> bool:
        """True if the entries are in a format that belongs to no store."""
        return self.backend == CANONICAL

    @property
    def key_groups(self) -> KeyGroupRange:
        """The slot's key groups."""
        return KeyGroupRange(self.first, self.last)


class CheckpointMetadata(Document):
    """One complete checkpoint or savepoint of a whole job."""

    later_fields = {  # noqa: RUF012  a ClassVar of the base
        "spark_state": 2,
        "processing_time_ms": 3,
        "pipeline": 3,
        "operator_state": 4,
        "second_watermarks": 4,
        "tables": 9,
        "batch_watermarks": 15,
        "event_times_by_value": 16,
    }

    job_id: str = Field(min_length=1, max_length=255)
    job_name: str = Field(max_length=255)
    checkpoint_id: int = Field(ge=0)
    """Number of the checkpoint; savepoints take numbers from the same sequence."""
    kind: CheckpointKind
    attempt: int = Field(ge=0)
    """Attempt (start of the driver) that took it."""
    batch: int = Field(ge=-1)
    """The state is that after this batch; -1 before the first."""
    max_parallelism: int = Field(ge=1, le=MAX_PARALLELISM_LIMIT)
    parallelism: int = Field(ge=1, le=MAX_PARALLELISM_LIMIT)
    created_ms: int = Field(ge=0)
    """When it was triggered, milliseconds since the epoch."""
    duration_ms: int = Field(ge=0)
    """From trigger to publication."""
    states: tuple[dict[str, JsonValue], ...] = ()
    """``StateInfo.to_json()`` of every state of the job."""
    slots: tuple[SlotState, ...]
    spark_location: FileRef | None = None
    """Bundle of the local Spark checkpoint location up to and including ``batch``."""
    spark_state: tuple[FileRef, ...] = ()
    """Packs of Spark's own state after ``batch``, oldest first: of two with the same path inside the later one counts."""
    watermarks: dict[str, int | None] = Field(default_factory=dict)
    """Largest event time seen per uid, milliseconds; None before its first row. Of steps with two inputs that of the first."""
    second_watermarks: dict[str, int | None] = Field(default_factory=dict)
    """The same of the second input, per uid of a step whose second input has had a row; empty in versions 1 to 3."""
    event_times_by_value: dict[str, InputValueTimes] = Field(default_factory=dict)
    """Largest event times of each input by value of ``watermark_by``, per uid of a step that has had rows with it; empty in versions 1 to 15."""
    batch_watermarks: dict[str, int] = Field(default_factory=dict)
    """Watermark that ``batch`` used, milliseconds, per uid of a step after others or before others that had one; empty in versions 1 to 14."""
    processing_time_ms: int | None = Field(default=None, ge=0)
    """Processing time of ``batch``, milliseconds since the epoch; later batches have none that is earlier. None in versions 1 and 2, and for 0 in
    documents from before 2026-11-23."""
    pipeline: Pipeline | None = None
    """Keyed steps and sources of the job; None in versions 1 and 2."""
    operator_state: tuple[OperatorFile, ...] = ()
    """One file per slot that has operator state; empty in versions 1 to 3."""
    tables: tuple[TableFile, ...] = ()
    """The states of a canonical savepoint as tables, for other programs to read. A restore reads the entries of the slots."""

    @model_validator(mode="after")
    def _check_canonical(self) -> Self:
        canonical = {slot.is_canonical for slot in self.slots}
        if len(canonical) > 1 or (self.tables and canonical != {True}):
            raise ValueError("either all slots are canonical or none, and only such have tables")
        return self

    @model_validator(mode="after")
    def _check_operator_state(self) -> Self:
        slots = [file.slot for file in self.operator_state]
        if slots != sorted(set(slots)) or any(slot >= self.parallelism for slot in slots):
            raise ValueError("the operator files are not one per slot")
        return self

    @model_validator(mode="after")
    def _check_slots(self) -> Self:
        expected = 0
        for index, slot in enumerate(self.slots):
            if slot.slot != index or slot.first != expected:
                raise ValueError(f"the key groups of slot {index} do not follow those of the previous slot")
            expected = slot.last + 1
        if len(self.slots) != self.parallelism or expected != self.max_parallelism:
            raise ValueError("the slots do not own every key group exactly once")
        return self

    def least_version(self) -> int:
        """Return the oldest version whose releases know where and how the states are stored and verified, and that a class may have written the stores."""
        inline = [slot.inline.checksum for slot in self.slots if slot.inline is not None]
        if has_xxh128([file.checksum for file in self.files()] + inline):
            return XXH128_VERSION
        if self.is_canonical:
            return 9
        if any(slot.heap_timers for slot in self.slots):
            return 8
        if any(slot.inline is not None for slot in self.slots):
            return 7
        if any(map(describes_broadcast, self.states)):
            return 6
        has_evolved = any("schemas" in state or _has_defaults(state.get("type")) for state in self.states)
        if has_evolved or any(map(is_segmented, self.states)):
            return 5
        return 4 if any(is_own_backend(slot.backend) for slot in self.slots) else 1

    def written_version(self) -> int:
        """Return at least 10 if there may be joint sessions. Releases from before them wrote none, and the first that did used `least_version`."""
        return max(self.least_version(), 10 if any(map(has_joint_sessions, self.states)) else 1)

    def files(self) -> Iterator[FileRef]:
        """Every file the checkpoint needs."""
        for slot in self.slots:
            yield from slot.files
        if self.spark_location is not None:
            yield self.spark_location
        yield from self.spark_state
        yield from self.operator_state
        yield from self.tables

    @property
    def is_canonical(self) -> bool:
        """True if the entries are in a format that belongs to no store, so that a job with any state backend can be restored from them."""
        return any(slot.is_canonical for slot in self.slots)

    @property
    def inline_bytes(self) -> int:
        """Bytes of the entries within ``_metadata``, of all slots."""
        return sum(slot.inline.size_bytes for slot in self.slots if slot.inline is not None)

    def with_inline_of(self, key_groups: KeyGroupRange | None) -> Self:
        """Return the document without the inline entries of slots that share no key group with ``key_groups``; None drops all."""

        def reduced(slot: SlotState) -> SlotState:
            if slot.inline is None or (key_groups is not None and slot.key_groups.intersect(key_groups) is not None):
                return slot
            return slot.model_copy(update={"inline": slot.inline.model_copy(update={"data": b""})})

        return self.model_copy(update={"slots": tuple(map(reduced, self.slots))}) if self.inline_bytes else self

    @property
    def processed_ms(self) -> int:
        """Processing time that the next batch must not fall behind; a checkpoint that does not know it says when it was triggered."""
        return self.created_ms if self.processing_time_ms is None else self.processing_time_ms

    @property
    def replay_after(self) -> int:
        """Smallest batch that some keyed step's store in some slot contains; changelogs of later batches are needed with it."""
        return min((batch for slot in self.slots for batch in slot.operator_batches.values()), default=self.batch)


def _has_defaults(type_: JsonValue) -> bool:
    """True if a row in a type has defaults of fields."""
    if isinstance(type_, list):
        return any(map(_has_defaults, type_))
    return isinstance(type_, dict) and ("defaults" in type_ or any(_has_defaults(part) for name, part in type_.items() if name != "names"))


def encode_metadata(metadata: CheckpointMetadata) -> bytes:
    """Return the bytes of ``_metadata``.

    Raises:
        InternalError: The inline entries of a slot were dropped.
    """
    for slot in metadata.slots:
        if slot.inline is not None and len(slot.inline.data) != slot.inline.size_bytes:
            raise InternalError(f"the inline entries of slot {slot.slot} are not here")
    return encode_document("checkpoint", metadata)


def decode_metadata(data: bytes, *, path: str) -> CheckpointMetadata:
    """Read and verify the bytes of ``_metadata``.

    Raises:
        IncompatibleFormatError: Written by a version this release does not read.
        CorruptDataError: Damaged.
    """
    return decode_document(data, "checkpoint", CheckpointMetadata, path=path)
