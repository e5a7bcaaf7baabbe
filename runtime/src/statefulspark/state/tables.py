"""StateTable: what the backend asks of every state while a batch goes through its life."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from statefulspark.state.store import Change

ENTRY_BYTES: Final = 160
"""Memory that one entry takes beside its key and value: its share of a dict and the heads of its objects."""

DECODED_FACTOR: Final = 4
"""How much more memory a decoded value of varying size may take than its bytes."""


class StateTable(Protocol):
    """The entries of one state: changed ones of the running batch, and a cache of unchanged ones.

    Attributes:
        hits: Look-ups that the cache of decoded entries answered. A key that is read ahead is looked up once per chunk of rows.
        misses: Look-ups that read the store.
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
        """Forget the changed entries, which now lie in the spill, and what the cache knew about them."""

    def commit(self) -> None:
        """Take the changed entries into the cache: they now lie in the store."""

    def rollback(self, *, spilled: bool) -> None:
        """Forget the changed entries; with ``spilled`` the cache may know entries of the spill and is emptied."""

    def prefetch(self, idents: Sequence[bytes]) -> None:
        """Read what is not in the cache."""

    def entry_count(self) -> int:
        """Return how many entries are held in memory."""
