"""Responses of a job's own code (driver API and termination messages), validated before use. Pure.

A driver runs a tenant's code, so its responses are untrusted: every text, number and list is bounded, unknown fields are ignored, and an invalid
response raises a single error type. pydantic keeps an error for each wrong value, with a copy of it if it parses JSON itself: so the JSON is parsed
first, within bounds, and a list ends at its first wrong element.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationError
from pydantic_core import from_json

from statefulspark.errors import UnavailableError
from statefulspark_operator.api.base import MESSAGE_MAX, SHORT_MAX, Count
from statefulspark_operator.api.drivers import Driver, Failure, Operation, Rescale, Slot
from statefulspark_operator.api.jobs import JobStateName, LagInfo, SnapshotInfo

_SLOTS_MAX: Final = 32_768
_LISTED_MAX: Final = 10_000
_VALUES_MAX: Final = 250_000
"""Commas in a response; a driver of 8000 slots writes fewer."""
_RANGES_LENGTH_MAX: Final = 1 << 16
"""Kubernetes cuts a termination message at 4 KiB."""
_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,252}")


def _reason(value: object) -> object:
    return value if not isinstance(value, str) or _REASON.fullmatch(value) else "Unknown"


def _message(value: object) -> object:
    return value if not isinstance(value, str) else (value[:MESSAGE_MAX] or "no reason given")


Word = Annotated[str, Field(min_length=1, max_length=64)]
Name = Annotated[str, Field(max_length=SHORT_MAX)]
Place = Annotated[str, Field(min_length=1, max_length=2048)]
Batch = Annotated[int, Field(ge=-1, le=(1 << 53) - 1)]
Milliseconds = Annotated[int, Field(ge=0, le=253_402_300_799_000)]
"""Since the epoch, up to the year 9999."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class FailureResponse(_Answer):
    """Reason of a failure."""

    reason: Annotated[str, BeforeValidator(_reason)]
    message: Annotated[str, BeforeValidator(_message)]

    def failure(self) -> Failure:
        """The operator's type for it."""
        return Failure(reason=self.reason, message=self.message)


class ProblemResponse(_Answer):
    """Body of an error response."""

    error: FailureResponse


class _Checkpoint(_Answer):
    id: Count
    kind: Word = "checkpoint"
    path: Place
    completed_ms: Milliseconds
    size_bytes: Count | None = None
    uploaded_bytes: Count | None = None
    duration_ms: Count | None = None
    batch: Batch | None = None

    def info(self) -> SnapshotInfo:
        return SnapshotInfo(
            id=self.id,
            path=self.path,
            completed_at=datetime.fromtimestamp(self.completed_ms / 1000, UTC),
            size_bytes=self.size_bytes,
            uploaded_bytes=self.uploaded_bytes,
            duration_ms=self.duration_ms,
            batch=self.batch,
        )


class _SlotMemory(_Answer):
    container_oom_kills: Count | None = None
    container_limit_bytes: Count | None = None


class _Slot(_Answer):
    slot: Annotated[int, Field(ge=0, lt=_SLOTS_MAX)]
    first: Annotated[int, Field(ge=0, lt=_SLOTS_MAX)]
    last: Annotated[int, Field(ge=0, lt=_SLOTS_MAX)]
    state: Word
    executor: Name | None = None
    host: Name | None = None
    memory: _SlotMemory | None = None

    def slot_status(self) -> Slot:
        memory = self.memory or _SlotMemory()
        return Slot(
            slot=self.slot,
            first=self.first,
            last=self.last,
            state=self.state,
            executor=self.executor,
            host=self.host,
            oom_kills=memory.container_oom_kills or 0,
            limit_bytes=memory.container_limit_bytes,
        )


class _Failing(_Answer):
    failures: Annotated[int, Field(ge=1, le=(1 << 53) - 1)]
    error: FailureResponse


class _Rescale(_Answer):
    from_parallelism: Annotated[int, Field(ge=1, le=_SLOTS_MAX)]
    to_parallelism: Annotated[int, Field(ge=1, le=_SLOTS_MAX)]
    fetch_bytes: Count = 0
    pause_ms: Count | None = None

    def rescale(self) -> Rescale:
        return Rescale(
            from_parallelism=self.from_parallelism,
            to_parallelism=self.to_parallelism,
            fetch_bytes=self.fetch_bytes,
            pause_ms=self.pause_ms,
        )


class _Lag(_Answer):
    rows: Count | None = None
    files: Count | None = None
    bytes: Count | None = None
    unknown_sources: Count = 0
    at_ms: Milliseconds | None = None

    def info(self) -> LagInfo:
        return LagInfo(
            rows=self.rows,
            files=self.files,
            size_bytes=self.bytes,
            unknown_sources=self.unknown_sources,
            at=datetime.fromtimestamp(self.at_ms // 1000, UTC) if self.at_ms is not None else None,
        )


class StatusResponse(_Answer):
    """Answer to ``GET /v1/status``."""

    state: JobStateName
    attempt: Count
    batch: Batch
    parallelism: Annotated[int, Field(ge=0, le=_SLOTS_MAX)]
    max_parallelism: Annotated[int, Field(ge=0, le=_SLOTS_MAX)]
    slots: Annotated[tuple[_Slot, ...], FailFast(), Field(max_length=_SLOTS_MAX)]
    last_checkpoint: _Checkpoint | None = None
    last_savepoint: _Checkpoint | None = None
    restored_from: Place | None = None
    failed_checkpoints: Count = 0
    restarts: Count = 0
    committed_batches: Count | None = None
    lag: _Lag | None = None
    idle: bool = False
    failing: _Failing | None = None
    last_rescale: _Rescale | None = None
    error: FailureResponse | None = None


class _Operation(_Answer):
    id: Name
    key: Name | None = None
    state: Literal["RUNNING", "SUCCEEDED", "FAILED"]
    checkpoint: _Checkpoint | None = None
    error: FailureResponse | None = None

    def operation(self) -> Operation:
        return Operation(
            id=self.id,
            state=self.state,
            snapshot=self.checkpoint.info() if self.checkpoint is not None else None,
            error=self.error.failure() if self.error is not None else None,
        )


class OperationsResponse(_Answer):
    """Answer to ``GET /v1/operations``."""

    operations: Annotated[tuple[_Operation, ...], FailFast(), Field(max_length=_LISTED_MAX)] = ()


class CheckpointsResponse(_Answer):
    """Answer to ``GET /v1/checkpoints``."""

    checkpoints: Annotated[tuple[_Checkpoint, ...], FailFast(), Field(max_length=_LISTED_MAX)] = ()


class EndingResponse(_Answer):
    """A termination message (docs/formats.md)."""

    version: Literal[1]
    state: Word
    batch: Batch
    path: Place | None
    error: FailureResponse | None
    checkpoints: (
        Annotated[str, Field(max_length=_RANGES_LENGTH_MAX, pattern=r"^(\d{1,16}(-\d{1,16})?(,\d{1,16}(-\d{1,16})?)*)?$")] | None
    ) = None
    """IDs of the retained checkpoints, as ranges."""
    snapshot: _Checkpoint | None = None

    def left(self, kind: str) -> SnapshotInfo | None:
        """The snapshot that the driver ended with, if it is of this kind."""
        return self.snapshot.info() if self.snapshot is not None and self.snapshot.kind == kind else None

    def kept(self) -> frozenset[int] | None:
        """IDs of the retained checkpoints; None if the driver does not report them, or reports more than a job can keep."""
        if self.checkpoints is None:
            return None
        ranges = [part.partition("-") for part in self.checkpoints.split(",") if part]
        bounds = [(int(first), int(last or first)) for first, _, last in ranges]
        if sum(max(0, last - first + 1) for first, last in bounds) > _LISTED_MAX:
            return None
        return frozenset(number for first, last in bounds for number in range(first, last + 1))


class _StoredSnapshot(_Checkpoint):
    max_parallelism: Annotated[int, Field(ge=1, le=_SLOTS_MAX)]


class StorageReport(_Answer):
    """Report of a storage pod: the output of ``statefulspark snapshot`` (docs/formats.md)."""

    version: Literal[1]
    snapshot: _StoredSnapshot | None = None
    disposed: bool = False
    error: FailureResponse | None = None


A = TypeVar("A", bound=_Answer)


def parse(kind: type[A], body: bytes | str) -> A:
    """Parses a response.

    Raises:
        UnavailableError: It has another structure, or a value is out of bounds. The message contains none of the values.
    """
    try:
        return kind.model_validate(_document(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _unusable(f"{where or 'JSON'}: {first['type']}") from None


def _document(body: bytes | str) -> object:
    if (body.count(b",") if isinstance(body, bytes) else body.count(",")) > _VALUES_MAX:
        raise _unusable(f"more than {_VALUES_MAX} values")
    try:
        return from_json(body, cache_strings="keys")
    except ValueError:
        raise _unusable("JSON: invalid") from None


def _unusable(problem: str) -> UnavailableError:
    return UnavailableError(
        f"a response of the job cannot be parsed ({problem}). Check that the job's image matches the operator's version"
    )


def driver_of(status: StatusResponse, operations: OperationsResponse | None, kept: CheckpointsResponse | None) -> Driver:
    """The driver's state from these responses."""
    return Driver(
        state=status.state,
        attempt=status.attempt,
        batch=status.batch,
        parallelism=status.parallelism,
        max_parallelism=status.max_parallelism,
        slots=tuple(slot.slot_status() for slot in status.slots),
        last_checkpoint=status.last_checkpoint.info() if status.last_checkpoint is not None else None,
        last_savepoint=status.last_savepoint.info() if status.last_savepoint is not None else None,
        restored_from=status.restored_from,
        failed_checkpoints=status.failed_checkpoints,
        restarts=status.restarts,
        committed_batches=status.committed_batches,
        lag=status.lag.info() if status.lag is not None else None,
        idle=status.idle,
        failures=status.failing.failures if status.failing is not None else 0,
        failing=status.failing.error.failure() if status.failing is not None else None,
        error=status.error.failure() if status.error is not None else None,
        last_rescale=status.last_rescale.rescale() if status.last_rescale is not None else None,
        operations={each.key: each.operation() for each in operations.operations if each.key} if operations is not None else {},
        retained=tuple(each.info() for each in kept.checkpoints if each.kind == "checkpoint") if kept is not None else None,
    )
