"""KeyScan: finds the keys of a slot that have an entry of one state, those of the running batch included.

A scan of the store cannot stay open while a function works on a key, because what the function changes may spill. So keys are read in pieces: take
a piece, close the scan, pass the keys on, and continue after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import Final, Protocol

from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.api.states import State
from statefulspark.state.encoding.layout import prefix_end, split_store_key, state_range, store_key
from statefulspark.state.store.layers import Layers

PIECE_KEYS: Final = 4096
_GROUP_BYTES: Final = 2


class ScannedTable(Protocol):
    """A table of a state whose keys can be listed. An ident is two bytes of key group, then the key's bytes."""

    def changed_idents(self) -> Iterable[bytes]:
        """Return the idents whose entries the batch has changed since it last spilled."""

    def has_entry(self, ident: bytes, *, stored: bool) -> bool:
        """True if a key has an entry now.

        Args:
            ident: Of the key.
            stored: Whether there is an entry below the changes of the batch.
        """


class ScannedState:
    """A scan over the keys that have an entry of a state.

    Attributes:
        state: The state.
        close: Ends the scan.
    """

    def __init__(self, state: State, scan: Callable[[], Iterator[bytes]], close: Callable[[], None]) -> None:
        self.state = state
        self.close = close
        self._scan = scan

    def keys(self) -> Iterator[tuple[int, bytes]]:
        """Yield key group and bytes of each key."""
        return ((int.from_bytes(ident[:_GROUP_BYTES]), ident[_GROUP_BYTES:]) for ident in self._scan())


def idents(table: ScannedTable, layers: Layers, state_id: int, key_groups: KeyGroupRange) -> Iterator[bytes]:
    """Yield the idents of all keys with an entry, by key group and key.

    An entry that has expired is one as long as it is stored. Between two idents the caller may change the entries of the ident that it got last.

    Args:
        table: Of the state.
        layers: The backend's.
        state_id: Of the state.
        key_groups: The slot's.
    """
    changed = {
        group: sorted(store_key(int.from_bytes(group), state_id, ident[_GROUP_BYTES:]) for ident in mine)
        for group, mine in groupby(sorted(table.changed_idents()), key=lambda ident: ident[:_GROUP_BYTES])
    }
    for key_group in range(key_groups.first, key_groups.last + 1):
        first, end = state_range(key_group, state_id)
        mine = changed.get(key_group.to_bytes(_GROUP_BYTES), [])
        while True:
            stored = list(islice(_stored_keys(layers, first, end), PIECE_KEYS))
            is_last = len(stored) < PIECE_KEYS
            until = end if is_last else prefix_end(stored[-1])
            among = set(stored)
            candidates = among.union(each for each in mine if first <= each < until)
            # All at once: what the caller does with the first may spill what the batch has changed.
            yield from [ident for key in sorted(candidates) if table.has_entry(ident := _ident(key), stored=key in among)]
            if is_last:
                break
            first = until


def _ident(key: bytes) -> bytes:
    return key[:_GROUP_BYTES] + split_store_key(key).key


def _stored_keys(layers: Layers, first: bytes, end: bytes) -> Iterator[bytes]:
    """Yield the store keys of stored keys, each once: entries of a map and segments of a list begin with the same bytes."""
    found = (key[: len(key) - len(split_store_key(key).user_key)] for key, _ in layers.scan(first, end))
    return (key for key, _ in groupby(found))
