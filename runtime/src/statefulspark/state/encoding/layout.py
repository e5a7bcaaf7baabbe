"""Layout of store keys, and the description of the state that a state id refers to.

Every entry: ``key group u16 | state id u16 | length of key u32 | key | user key``; the user key is empty except in map states.
Every timer: ``key group u16 | state id u16 | timestamp i64 | key``; the sign bit of the timestamp is flipped, so that byte order is
time order. All numbers are big-endian. So a key group is a contiguous range of the store, a state is a contiguous range within it,
a map is a contiguous range within that, and the timers of a key group are stored in the order in which they are due.
The segments of a long list follow its head in the same way as entries of a map (`encoding.segments`).
Raw keyed state has entries with an empty key; the user key is a number: 0 for a stream's header, then those of its chunks.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Protocol

from statefulspark.errors import CorruptDataError, IncompatibleFormatError

STATE_ID_MAX: Final = 0xFFFF
"""Largest state id: it is stored in two bytes."""

_ENTRY: Final = struct.Struct(">HHI")
_TIMER: Final = struct.Struct(">HHQ")
_GROUP: Final = struct.Struct(">H")
_STATE: Final = struct.Struct(">HH")
_SIGN: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Schema:
    """One declaration that a state has had.

    Attributes:
        type: Type of the state, as in `StateInfo`.
        ttl_ms: Time to live in milliseconds, None if values did not expire.
        since_ms: Processing time of the last batch that was committed before the declaration; 0 for the first one.
    """

    type: dict[str, Any]
    ttl_ms: int | None
    since_ms: int


@dataclass(frozen=True, slots=True)
class StateInfo:
    """One registered state: what is needed to read its entries without the job's code.

    Attributes:
        state_id: 0 .. 65535, unique in the job.
        uid: The keyed step.
        name: The state's name within the step.
        kind: ``value``, ``list``, ``map``, ``reducing``, ``aggregating``, ``event-timers``, ``processing-timers``,
            ``raw-keyed``, ``operator-list``, ``operator-union``, ``operator-broadcast`` or ``raw-operator``.
        key_type: Types of the key columns (`keys.KeyCodec.to_json`).
        type: Type of the state (`type_base.TypeInformation.to_json`); empty for timers.
        ttl_ms: Time to live in milliseconds, None when values do not expire.
        segmented: True if a list of the state is, or has been, so long that it is stored in segments. Releases that do not know segments
            refuse such a state.
        schemas: Declarations that the state has had, oldest first; the last is the current one, of which ``type`` may have other
            defaults, and ``ttl_ms`` may be another length. Empty if the state has never evolved, else 2 or more.
    """

    state_id: int
    uid: str
    name: str
    kind: str
    key_type: list[dict[str, Any]]
    type: dict[str, Any]
    ttl_ms: int | None = None
    segmented: bool = False
    schemas: tuple[Schema, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data; ``segmented`` is left out unless it is true, and ``schemas`` if the state has not evolved."""
        data = asdict(self)
        data["schemas"] = [asdict(schema) for schema in self.schemas]
        if not self.schemas:
            del data["schemas"]
        if not self.segmented:
            del data["segmented"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StateInfo:
        """Rebuild from `to_json`.

        Raises:
            IncompatibleFormatError: A part is missing or unknown.
        """
        try:
            schemas = tuple(Schema(**schema) for schema in data.get("schemas", ()))
            if len(schemas) == 1:
                raise TypeError
            return cls(**{**data, "schemas": schemas})
        except TypeError as error:
            raise IncompatibleFormatError("not the description of a state", path="state info") from error


class StateIds(Protocol):
    """Assigns state ids; in a slot it asks the coordinator."""

    def register(self, uid: str, name: str, kind: str, description: dict[str, Any]) -> StateInfo:
        """Return the state of this name, numbered now or earlier.

        Args:
            uid: The keyed step.
            name: The state's name.
            kind: As in `StateInfo`.
            description: ``key_type``, ``type`` and ``ttl_ms`` of `StateInfo`, and ``segmented`` once it is true. With ``remembered`` true it
                is no declaration: a known state stays as it is, and is opened to remove entries.

        Raises:
            NotRestorableError: The name is taken by a state of another kind or type (see `check_restorable`).
        """


def is_segmented(description: Mapping[str, Any]) -> bool:
    """Return True if the JSON description of a state says that lists may be stored in segments."""
    return bool(description.get("segmented"))


JOINT_SESSIONS: Final = "_sessions("
"""How the names of states begin that have the sessions of a key with their contents."""


def has_joint_sessions(description: Mapping[str, Any]) -> bool:
    """Return True if the JSON description of a state is of joint sessions, which releases before them would leave behind."""
    return str(description.get("name", "")).startswith(JOINT_SESSIONS)


class StoreKey(NamedTuple):
    """The parts of an entry's store key; ``user_key`` is empty except in map states."""

    key_group: int
    state_id: int
    key: bytes
    user_key: bytes


class TimerKey(NamedTuple):
    """The parts of a timer's store key."""

    key_group: int
    state_id: int
    timestamp_ms: int
    key: bytes


def group_prefix(key_group: int) -> bytes:
    """Return the two bytes with which every store key of the key group begins."""
    return _GROUP.pack(key_group)


def state_id_of(data: bytes) -> int:
    """Return the state id in the store key of an entry or timer."""
    return int.from_bytes(data[2:4], "big")


def store_key(key_group: int, state_id: int, key: bytes, user_key: bytes = b"") -> bytes:
    """Return the store key of an entry; with the default ``user_key`` also the prefix of a map's entries."""
    return _ENTRY.pack(key_group, state_id, len(key)) + key + user_key


def split_store_key(data: bytes) -> StoreKey:
    """Take an entry's store key apart.

    Raises:
        CorruptDataError: ``data`` is too short for the lengths it names.
    """
    if len(data) < _ENTRY.size:
        raise CorruptDataError("too short", path="store key")
    key_group, state_id, length = _ENTRY.unpack_from(data)
    end = _ENTRY.size + length
    if end > len(data):
        raise CorruptDataError("the key is longer than the store key", path="store key")
    return StoreKey(key_group, state_id, data[_ENTRY.size : end], data[end:])


def timer_store_key(key_group: int, state_id: int, timestamp_ms: int, key: bytes) -> bytes:
    """Return the store key of a timer."""
    return _TIMER.pack(key_group, state_id, timestamp_ms + _SIGN) + key


def split_timer_store_key(data: bytes) -> TimerKey:
    """Take a timer's store key apart.

    Raises:
        CorruptDataError: ``data`` is too short.
    """
    if len(data) < _TIMER.size:
        raise CorruptDataError("too short", path="store key of a timer")
    key_group, state_id, timestamp = _TIMER.unpack_from(data)
    return TimerKey(key_group, state_id, timestamp - _SIGN, data[_TIMER.size :])


def state_range(key_group: int, state_id: int) -> tuple[bytes, bytes]:
    """Return the first store key and the end (exclusive) of one state in one key group."""
    number = key_group << 16 | state_id
    return number.to_bytes(4, "big"), (number + 1).to_bytes(4, "big")


def key_group_range_bounds(first: int, last: int) -> tuple[bytes, bytes]:
    """Return the first store key and the end (exclusive) of the key groups ``first .. last``."""
    return _GROUP.pack(first), _GROUP.pack(last + 1)


def prefix_end(prefix: bytes) -> bytes:
    """Return the smallest bytes after all that begin with ``prefix``, which holds at least one byte below 0xFF."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1])
