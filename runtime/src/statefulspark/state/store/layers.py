"""Layers: what a state reads and writes below its cache: the store, then held changes of committed batches, then the spill.

A batch that changes more than fits in memory writes encoded changes to a small store of its own, the spill. The store is not
written before the batch is committed, so rolling back a batch means deleting its spill.

While a snapshot of the store is being taken, the store must contain exactly one batch and must not change. Changes that are committed
meanwhile are **held** in front of the store, so that the next batch need not wait, and are written to it after the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.state.store.committed_entries import CommittedEntries
from statefulspark.state.store.overlays import MemoryOverlay, Overlay, SpilledOverlay, SpillStore, change_bytes, overlaid

__all__ = ["Layers", "SpillStore"]

HELD_MAX: Final = 4
"""Overlays of committed batches; every one makes a read slower."""
_AFTER_ALL_KEYS: Final = b"\xff\xff"
"""Store keys begin with a key group, which is below 32,768."""


class Layers:
    """Reads through all layers.

    Args:
        base: The store; not closed here.
        open_spill: Makes an empty store.
        held_bytes: Memory for held changes, estimated; more go to a spill.

    Attributes:
        base: The store below the held changes and the spill.
        held_memory_bytes: Memory that held changes take now, estimated.
        get: Returns the value of a key, None when absent.
        spills: How often the running batch spilled, 0 when it did not.
    """

    __slots__ = ("_held", "_held_bytes", "_open_spill", "_over", "_spill", "base", "get", "held_memory_bytes", "spills")

    def __init__(self, base: KeyValueStore, open_spill: Callable[[], SpillStore], *, held_bytes: int) -> None:
        self.base = base
        self.held_memory_bytes = 0
        self.spills = 0
        self._open_spill = open_spill
        self._held_bytes = held_bytes
        self._spill: SpilledOverlay | None = None
        # Oldest first. Replaced, never modified: an abandoned attempt at a batch may still read it.
        self._held: tuple[Overlay, ...] = ()
        self._over: tuple[Overlay, ...] = ()
        self.get: Callable[[bytes], bytes | None] = base.get

    @property
    def holding(self) -> bool:
        """True if changes of committed batches wait for the store."""
        return bool(self._held)

    @property
    def can_hold(self) -> bool:
        """True if one more committed batch can be held."""
        return len(self._held) < HELD_MAX

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values in the order of ``keys``."""
        if not self._over:
            return self.base.get_many(keys)
        values: list[bytes | None] = [None] * len(keys)
        below = list(range(len(keys)))
        for overlay in reversed(self._over):
            positions, below = below, []
            for position, change in zip(positions, overlay.find([keys[position] for position in positions]), strict=True):
                if change is None:
                    below.append(position)
                else:
                    values[position] = change[1]
        for position, value in zip(below, self.base.get_many([keys[position] for position in below]), strict=True):
            values[position] = value
        return values

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``first <= key < end`` in order; take them before anything is spilled."""
        if not self._over:
            return self.base.scan(first, end)
        merged: Iterator[Change] = iter(self.base.scan(first, end))
        for overlay in self._over:
            merged = overlaid(merged, overlay.changes(first, end))
        return ((key, value) for key, value in merged if value is not None)

    def has_entries(self, first: bytes, end: bytes) -> bool:
        """True if there is an entry with ``first <= key < end``; reads no more than one."""
        return next(self.scan(first, end), None) is not None

    def committed(self) -> CommittedEntries:
        """Return the entries of the store with the changes that are held over it, without those of the running or finished batch."""
        return CommittedEntries(self.base, self._held)

    def spill(self, changes: list[Change]) -> None:
        """Put changes of the running batch over everything before."""
        if self._spill is None:
            self._spill = SpilledOverlay(self._open_spill())
            self._layers_changed()
        self._spill.write(changes)
        self.spills += 1

    def spilled_changes(self) -> Iterator[Change]:
        """All that the running batch spilled, in key order, each key once."""
        return iter(()) if self._spill is None else self._spill.changes(b"", _AFTER_ALL_KEYS)

    def drop_spill(self) -> None:
        """Throw away what the running batch spilled."""
        spill, self._spill = self._spill, None
        self.spills = 0
        self._layers_changed()
        if spill is not None:
            spill.destroy()

    def hold(self, pending: list[list[Change]]) -> None:
        """Keep the changes of a committed batch, its spill and ``pending``, over the store; again after an error repeats it whole.

        Raises:
            UnavailableError: The disk is full or fails.
        """
        if self._spill is not None:
            self._held += (self._spill,)
            self._spill = None
            self.spills = 0
        if pending:
            self._held_for(pending).write(change for changes in pending for change in changes)
        self._layers_changed()

    def settle(self, pending: list[list[Change]]) -> None:
        """Write what is held, then the spill and ``pending`` of a committed batch, to the store; again after an error repeats it whole.

        Raises:
            UnavailableError: The disk is full or fails.
        """
        self.settle_held()
        if self.spills:
            self.base.write(self.spilled_changes())
        for changes in pending:
            self.base.write(changes)
        self.drop_spill()

    def settle_held(self) -> None:
        """Write what is held to the store; errors as in `settle`."""
        for overlay in self._held:
            self.base.write(overlay.changes(b"", _AFTER_ALL_KEYS))
        held, self._held = self._held, ()
        self._layers_changed()
        for overlay in held:
            overlay.destroy()

    def _held_for(self, pending: Iterable[Iterable[Change]]) -> Overlay:
        """The overlay that takes more changes: the newest, or a new one above it."""
        size_bytes = sum(change_bytes(change) for changes in pending for change in changes)
        newest = self._held[-1] if self._held else None
        fits = self.held_memory_bytes + size_bytes <= self._held_bytes
        if newest is None or (fits and not isinstance(newest, MemoryOverlay)) or (not fits and isinstance(newest, MemoryOverlay)):
            newest = MemoryOverlay() if fits else SpilledOverlay(self._open_spill())
            self._held += (newest,)
        return newest

    def _layers_changed(self) -> None:
        self.held_memory_bytes = sum(overlay.size_bytes for overlay in self._held if isinstance(overlay, MemoryOverlay))
        self._over = self._held if self._spill is None else (*self._held, self._spill)
        # With nothing over the store, which is nearly always, a read goes to it without a call in between.
        self.get = self._get_through if self._over else self.base.get

    def _get_through(self, key: bytes) -> bytes | None:
        wanted = (key,)
        for overlay in reversed(self._over):
            change = overlay.find(wanted)[0]
            if change is not None:
                return change[1]
        return self.base.get(key)
