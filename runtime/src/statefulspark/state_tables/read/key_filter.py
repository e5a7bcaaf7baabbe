"""KeyFilter: leaves keys out of the entries of a slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from statefulspark.state.encoding.layout import StateInfo, split_store_key, split_timer_store_key, state_id_of
from statefulspark.state.encoding.segments import is_segment
from statefulspark.state.store.base import StoredEntries
from statefulspark.state.timers import TIMER_KINDS

Entry = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Selects the entries that are left out of a savepoint; by default none.

    Attributes:
        states: The states that lose keys, by state id. Their entries and timers have keys.
        keys: The bytes of the keys, by state id.
        left_out: Number of entries that `kept` has left out, by state id. A long list is one entry.
        found: Keys that `kept` has met, by state id.
    """

    states: Mapping[int, StateInfo] = field(default_factory=dict)
    keys: Mapping[int, Collection[bytes]] = field(default_factory=dict)
    left_out: Counter[int] = field(default_factory=Counter)
    found: dict[int, set[bytes]] = field(default_factory=dict)

    def kept(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """Return the entries that stay, and count the others.

        Raises:
            CorruptDataError: A store key is shorter than it says.
        """
        return self._filtered(entries) if self.states else entries

    def _filtered(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        for store_key, value in entries:
            if (key := self.key_left_out(store_key)) is None:
                yield store_key, value
                continue
            info = self.states[state_id_of(store_key)]
            self.left_out[info.state_id] += not (info.kind == "list" and is_segment(value))
            self.found.setdefault(info.state_id, set()).add(key)

    def applied(self, store: StoredEntries) -> StoredEntries:
        """Return the entries of a store that stay."""
        return _FilteredEntries(store, self) if self.states else store

    def key_left_out(self, store_key: bytes) -> bytes | None:
        """Return the key of an entry that the savepoint does not get, None if it gets the entry."""
        info = self.states.get(state_id_of(store_key))
        if info is None:
            return None
        key = split_timer_store_key(store_key).key if info.kind in TIMER_KINDS else split_store_key(store_key).key
        return key if key in self.keys[info.state_id] else None


@dataclass(frozen=True, slots=True)
class _FilteredEntries:
    """The entries of a store that stay; `StoredEntries` says what the methods do."""

    store: StoredEntries
    key_filter: KeyFilter

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self.store.get_many(keys)
        return [value if self.key_filter.key_left_out(key) is None else None for key, value in zip(keys, found, strict=True)]

    def scan(self, first: bytes, end: bytes) -> Iterator[Entry]:
        return (entry for entry in self.store.scan(first, end) if self.key_filter.key_left_out(entry[0]) is None)

    def close(self) -> None:
        self.store.close()
