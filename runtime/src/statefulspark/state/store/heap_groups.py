"""HeapGroup: the entries of one key group in a `HeapStore`, and the order of their keys."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from statefulspark.state.store.key_order import KeyOrder

_HEAD: Final = 4
"""Bytes of a store key that name the key group and the state."""


class HeapGroup:
    """The entries of one key group, and an order of the keys per state. A scan brings those up to date that it enters. Not thread-safe.

    Args:
        ordered: Ids of the states, as in store keys, whose keys are kept in order from the first one on.

    Attributes:
        entries: By store key. Replaced as a whole by `copy_for_writing`.
        frozen: True if a snapshot needs ``entries`` as they are: `copy_for_writing` before any change.
    """

    __slots__ = ("_ordered", "_orders", "entries", "frozen")

    def __init__(self, ordered: Container[bytes]) -> None:
        self._ordered = ordered
        self.entries: dict[bytes, bytes] = {}
        self.frozen = False
        self._orders: dict[bytes, KeyOrder] = {}

    def copy_for_writing(self) -> None:
        """Leave the entries to the snapshots that have them, and go on with a copy."""
        self.entries = self.entries.copy()
        self.frozen = False

    def put(self, key: bytes, value: bytes) -> None:
        """Set an entry."""
        entries = self.entries
        if key not in entries:
            head = key[:_HEAD]
            order = self._orders.get(head)
            if order is None:
                order = self._orders[head] = KeyOrder(built=head[2:] in self._ordered)
            entries[key] = value
            order.add(key, entries)
        else:
            entries[key] = value

    def remove(self, key: bytes) -> None:
        """Delete an entry, if it is there."""
        if self.entries.pop(key, None) is not None:
            self._orders[key[:_HEAD]].remove()

    def between(self, first: bytes, end: bytes, taken: int = 0) -> Iterator[bytes]:
        """Yield the keys of ``first <= key < end`` in order, among them some that have been deleted. Change nothing meanwhile.

        Args:
            first: The first one that may come.
            end: No key from here on comes.
            taken: Keys that the same scan has taken already.
        """
        start = first[:_HEAD]
        heads = [start] if end <= _after(start) else sorted(head for head in self._orders if start <= head < end)
        for head in heads:
            order = self._orders.get(head)
            if order is None:
                continue
            if not order.built:
                order.build(key for key in self.entries if key[:_HEAD] == head)
            yield from order.between(first, end, self.entries, taken)


def _after(head: bytes) -> bytes:
    """Return the end of the state that a head with all its bytes is of; nothing for a shorter head."""
    return (int.from_bytes(head, "big") + 1).to_bytes(_HEAD + 1, "big")[1:] if len(head) == _HEAD else b""
