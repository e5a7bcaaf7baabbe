"""KeyedSlot: a keyed state backend that is made and driven with few words, for tests of state and of what stands on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.backend import BatchBudget, KeyedStateBackend
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.registry import StateRegistry
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.types.types import Types

ASCII_GROUPS = KeyGroupRange(0, 127)
LETTER_GROUPS = KeyGroupRange(96, 127)
"""The key groups of keys that begin with a small letter."""

STRING_KEYS = KeyCodec([Types.STRING()])


class MemorySpill(HeapStore):
    """A spill in memory: the same bytes without files."""

    def destroy(self) -> None:
        """Close it; there is nothing to delete."""
        self.close()


class KeyedSlot:
    """A backend over a store, with keys by name (their key group is the first letter's) and a clock."""

    def __init__(
        self,
        store: KeyValueStore,
        directory: Path,
        budget: BatchBudget,
        registry: StateRegistry | None = None,
        *,
        key_groups: KeyGroupRange = ASCII_GROUPS,
    ) -> None:
        self.store = store
        self.registry = registry or StateRegistry()
        self.directory = directory
        self.budget = budget
        self.key_groups = key_groups
        self.now_ms = 1_000_000
        self.changes: list[Change] = []
        self.backend = self.new_backend()

    def new_backend(self, uid: str = "step") -> KeyedStateBackend:
        """Make a backend over the same store, with nothing in memory."""
        return KeyedStateBackend(
            self.store,
            self.registry,
            uid=uid,
            key_codec=STRING_KEYS,
            key_groups=self.key_groups,
            budget=self.budget,
            spill_directory=self.directory / "spill",
            open_spill=lambda _path, _store: MemorySpill(),
        )

    def key(self, key: str) -> None:
        """Make ``key`` current."""
        self.backend.set_current_key(key_group(key), key, STRING_KEYS.encode(key))

    def begin(self, batch: int | None = None, *, hold: bool = False) -> None:
        """Begin ``batch``, by default the one after the last finished one, at ``now_ms``."""
        self.backend.begin_batch(self.backend.batch + 1 if batch is None else batch, processing_time_ms=self.now_ms, hold=hold)

    def finish(self) -> list[Change]:
        """Finish the batch and return (and keep) what it changed."""
        self.changes = []
        self.backend.finish_batch(self.changes.extend)
        return self.changes

    @contextmanager
    def batch(self, key: str | None = None) -> Iterator[KeyedStateBackend]:
        """A whole batch, with ``key`` current."""
        self.begin()
        if key is not None:
            self.key(key)
        yield self.backend
        self.finish()

    def entries(self) -> dict[bytes, bytes]:
        """Return all entries of the store."""
        return dict(self.store.scan(b"", b"\xff\xff"))


def key_group(key: str) -> int:
    """Return the key group of a key: its first letter's ASCII code."""
    return ord(key[0]) & 127 if key else 0
