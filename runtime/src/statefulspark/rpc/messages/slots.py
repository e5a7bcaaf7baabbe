"""A slot's requests to the coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statefulspark.checkpoint.formats.metadata import OperatorFile, SlotState
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.restore.plan_message import SlotRestore
from statefulspark.keygroups import KeyGroupRange
from statefulspark.memory.tuning import MemoryTuning
from statefulspark.rpc.codec import Message, RemoteError, Request
from statefulspark.rpc.messages.batches import Wait
from statefulspark.state.encoding.layout import StateInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPart(Message):
    """Operator state of one step in one slot."""

    restored: bool
    """True if storage has state of the step, or an earlier copy of the function took a snapshot."""
    assigned: bool
    """True if the slot must report the lists that its function makes of these."""
    states: tuple[StateInfo, ...]
    """Descriptions of the lists."""
    lists: bytes
    """An operator file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRestore(Message):
    """The operator state of a slot."""

    first: int | None
    """First batch of the distribution, from which on the slot finds its state in storage. None before it is committed: ``parts`` have it."""
    processing_time_ms: int
    """Of the batch before the distribution."""
    parts: dict[str, OperatorPart]
    """Per uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterAnswer(Message):
    """The slot's incarnation, and what it restores."""

    epoch: int
    attempt: int
    """Attempt number of the user's function."""
    base: str | None
    """URL of the checkpoint that it restores."""
    restore: SlotRestore
    expected: dict[str, int]
    """The last committed batch per uid that changed it in this slot."""
    memory: MemoryTuning | None
    """None: the slot's native memory is not managed."""
    processing_time_ms: int | None
    """Of the job's last committed batch, as in ``HeartbeatAnswer``; None before the first."""
    operator_state: OperatorRestore | None
    """None: no step of the job has operator state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Register(Request[RegisterAnswer | Wait | None]):
    """A slot starts. None: it is to start again, perhaps on another executor."""

    slot: int
    executor: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Request[None]):
    """The slot has restored its state and serves."""

    slot: int
    epoch: int
    location: str
    unix: str
    """Path of its Unix socket on its own host."""
    timers: dict[str, tuple[int | None, int | None]]
    """Earliest event-time and processing-time timer per uid, in milliseconds."""
    operator_state: dict[str, bytes]
    """New operator state of the functions that were assigned some: an operator file per uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFailedAnswer(Message):
    """The slot's next step after a failed restore."""

    again: bool
    """True if it restores once more, from another checkpoint or when storage answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFailed(Request[RestoreFailedAnswer]):
    """The slot cannot restore its state."""

    slot: int
    epoch: int
    base: str | None
    error: RemoteError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDamaged(Request[None]):
    """The slot has found damage in the files of its store, and ends."""

    slot: int
    epoch: int
    error: RemoteError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReopenedAnswer(Message):
    """The number of the new copy."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened(Request[ReopenedAnswer]):
    """The slot opens a new copy of the user's function and needs its attempt number."""

    slot: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterStateAnswer(Message):
    """The state, numbered now or earlier."""

    state: StateInfo
    step_states: tuple[StateInfo, ...]
    """All states of the step, also those that the function no longer declares, or not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterState(Request[RegisterStateAnswer]):
    """A function declares a state."""

    uid: str
    name: str
    kind: str
    description: dict[str, Any]
    """Types and time to live, as `StateIds.register` takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogsAnswer(Message):
    """Changelogs in batch order."""

    changelogs: tuple[ChangelogRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changelogs(Request[ChangelogsAnswer]):
    """Ask for changelogs of ``uid`` that touch ``key_groups``, of batches ``after < batch <= until``."""

    uid: str
    key_groups: KeyGroupRange
    after: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPart:
    """A slot's part of a checkpoint: its files are in storage, or it has its entries with it."""

    state: SlotState
    state_bytes: dict[int, int] | None
    """Bytes of each state by id if the entries are for ``_metadata``; then ``state`` has none of them if they are too large. None for files."""
    operator_state: OperatorFile | None
    """None: the slot has none."""
    sync_ms: float
    """For how long a batch waited for the flush and the hard links."""
    flush_ms: float
    upload_ms: float
    uploaded_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDone(Request[None]):
    """A snapshot has ended; either ``part`` or ``error`` is given."""

    slot: int
    epoch: int
    checkpoint_id: int
    part: SnapshotPart | None = None
    error: str | None = None
    """The failure; None if there is none."""
    refused: bool = False
    """True if it was an `InvalidInputError`: another attempt fails in the same way."""
