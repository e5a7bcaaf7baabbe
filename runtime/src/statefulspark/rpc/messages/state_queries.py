"""The driver's reads of a slot's keyed state on behalf of a user."""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.rpc.codec import Message, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry(Message):
    """One entry of the store."""

    key: bytes
    value: bytes | None
    """None if it is larger than the answer may be."""
    size_bytes: int
    """Of the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntries(Message):
    """State as of the last committed batch."""

    entries: tuple[StoredEntry, ...]
    """In the order of their keys."""
    more: bool
    """True if there are further entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState(Request[StateEntries]):
    """Read the entries of one key, without the changes of a batch that is not committed."""

    epoch: int
    uid: str
    expected: int
    """The last committed batch that changed the step in this slot."""
    first: bytes
    """Store key of the first entry."""
    end: bytes | None
    """Entries before this store key; None for the first one alone."""
    entries_max: int
    bytes_max: int
    """Of all values together."""
