"""StateTable: the interface between the backend and each of its states during the life of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from statefulspark.state.evolution.schema_reader import SchemaReader
from statefulspark.state.store.base import Change

ENTRY_BYTES: Final = 160
"""Memory that one entry takes beside its key and value: its share of a dict and the heads of its objects."""

DECODED_FACTOR: Final = 4
"""Ratio of the memory of a decoded value of varying size to its encoded size, at most."""


class StateTable(Protocol):
    """The entries of one state: changed ones of the running batch, and a cache of unchanged ones.

    Attributes:
        hits: Look-ups that the cache of decoded entries answered. A key that is read ahead is looked up once per chunk of rows.
        misses: Lookups that read the store.
    """

    hits: int
    misses: int

    def changes(self) -> list[Change]:
        """Encode what the batch changed."""

    def changed_bytes(self) -> int:
        """Estimate the memory of changed entries, rather too high than too low."""

    def recount(self) -> None:
        """Make the next estimate exact; takes time for each changed entry."""

    def cached_bytes(self) -> int:
        """Estimate the memory of the younger half of the cache."""

    def age(self) -> None:
        """Drop the older half of the cache; the younger becomes the older."""

    def spilled(self) -> None:
        """Drop the changed entries, which are now in the spill, and their cached values."""

    def commit(self) -> None:
        """Move the changed entries, which are now in the store, to the cache."""

    def rollback(self, *, spilled: bool) -> None:
        """Forget the changed entries; with ``spilled`` the cache may know entries of the spill and is emptied."""

    def prefetch(self, idents: Sequence[bytes]) -> None:
        """Read what is not in the cache."""

    def entry_count(self) -> int:
        """Return the number of entries in memory."""


class EvolvingTable(StateTable, Protocol):
    """A table whose state may have evolved."""

    def read_with(self, reader: SchemaReader) -> None:
        """Read and write values of a state that has evolved; called before anything is read."""
