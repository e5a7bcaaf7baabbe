"""BroadcastMap: the entries of one broadcast state in one slot, as stored bytes.

There is one dict, which a batch changes in place. Beside it are the values that the running and the finished batch replaced, so that both can be
undone. A batch that changes nothing costs nothing, and a lookup is one look into the dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_Before = dict[bytes, bytes | None]
"""Values that a batch replaced, by key; None if there was none."""


class BroadcastMap:
    """Not thread-safe.

    Args:
        entries: The committed entries: values by key, in bytes.

    Attributes:
        entries: The entries as they are now. Only this class changes them.
        decoded: Decoded values of some entries, kept by those who read.
        size_bytes: Bytes of keys and values.
    """

    __slots__ = ("_finished", "_order", "_running", "decoded", "entries", "size_bytes")

    def __init__(self, entries: Mapping[bytes, bytes]) -> None:
        self.entries = dict(entries)
        self.decoded: dict[bytes, Any] = {}
        self.size_bytes = sum(len(key) + len(value) for key, value in entries.items())
        self._running: _Before = {}
        self._finished: _Before = {}
        self._order: list[bytes] | None = None

    def order(self) -> list[bytes]:
        """Return the keys in order. The list does not change while it is iterated over."""
        if self._order is None:
            self._order = sorted(self.entries)
        return self._order

    def put(self, key: bytes, value: bytes) -> None:
        """Set a value in the running batch."""
        before = self.entries.get(key)
        if before != value:
            self._running.setdefault(key, before)
            self._set(key, value)

    def remove(self, key: bytes) -> None:
        """Remove a key, if there, in the running batch."""
        before = self.entries.get(key)
        if before is not None:
            self._running.setdefault(key, before)
            self._set(key, None)

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """Return what the running batch changed, by key; None for removed entries."""
        entries = self.entries
        return [(key, entries.get(key)) for key in sorted(self._running) if entries.get(key) != self._running[key]]

    def committed(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return the entries as of the last committed batch, in order."""
        before = {**self._running, **self._finished}
        if not before:
            entries = self.entries
            return tuple([(key, entries[key]) for key in self.order()])
        found = {**self.entries, **before}
        return tuple([(key, value) for key, value in sorted(found.items()) if value is not None])

    def finish(self) -> None:
        """End the running batch; the one that was finished before has been committed."""
        self._finished, self._running = self._running, {}

    def commit(self) -> None:
        """Handle that the finished batch cannot be undone any more."""
        self._finished = {}

    def undo_running(self) -> None:
        """Undo the running batch."""
        self._running = self._undone(self._running)

    def undo_finished(self) -> None:
        """Undo the finished batch; none is running."""
        self._finished = self._undone(self._finished)

    def _undone(self, before: _Before) -> _Before:
        for key, value in before.items():
            self._set(key, value)
        return {}

    def _set(self, key: bytes, value: bytes | None) -> None:
        before = self.entries.get(key)
        if before is not None:
            self.size_bytes -= len(key) + len(before)
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value
            self.size_bytes += len(key) + len(value)
        if (before is None) != (value is None):
            self._order = None
        self.decoded.pop(key, None)
