"""StoreGate: who may write a slot's store or read it as it is, and how long a snapshot held up batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from statefulspark.errors import UnavailableError

SNAPSHOT_RUNS: Final = "an earlier snapshot of the slot is still being taken"
_SNAPSHOT: Final = "snapshot"
_WRITER: Final = "writer"
_READER: Final = "reader"


class StoreGate:
    """One keyed step writes at a time; nobody writes while a snapshot is taken, which must hold exactly one batch, or while a query reads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: str | None = None
        self._delay_ms = 0.0
        self._waiting = 0
        self._queries = 0
        self._holding = 0
        """Batches that begin beside a snapshot: they change what is held over the store."""

    @property
    def wanted(self) -> bool:
        """True if a batch, a snapshot or a query waits for its turn."""
        return self._waiting > 0 or self._queries > 0

    @contextmanager
    def turn(self, *, can_hold: bool) -> Iterator[bool]:
        """A batch begins and what the batch before changed wants to be written.

        Args:
            can_hold: the changes may be held over the store instead, so a snapshot need not be waited for.

        Yields:
            True when the store may be written, False when a snapshot is being taken.
        """
        started = time.monotonic()
        with self._changed:
            met_snapshot = self._inside == _SNAPSHOT
            self._wait_for(lambda: self._inside is None or (can_hold and self._inside == _SNAPSHOT))
            free = self._inside is None
            if free:
                self._inside = _WRITER
            else:
                self._holding += 1
        if met_snapshot and free:
            self._delayed(started)
        try:
            yield free
        finally:
            if free:
                self._leave()
            else:
                # Holding is work that the batch would not have without the snapshot.
                self._delayed(started)
                with self._changed:
                    self._holding -= 1
                    self._changed.notify_all()

    @contextmanager
    def reading(self, timeout_s: float) -> Iterator[None]:
        """Read while nobody changes the store or what is held over it. Batches and snapshots wait for the reader, and go before one that waits.

        Raises:
            UnavailableError: Batches, or a snapshot, had the store all the time.
        """
        with self._changed:
            self._queries += 1
            try:
                free = self._changed.wait_for(lambda: self._inside is None and not self._holding and not self._waiting, timeout_s)
            finally:
                self._queries -= 1
            if not free:
                raise UnavailableError("batches or a snapshot of the slot keep its state busy. Retry in a moment")
            self._inside = _READER
        try:
            yield
        finally:
            self._leave()

    def close(self, timeout_s: float) -> None:
        """Let nobody write until `open`.

        Raises:
            UnavailableError: an earlier snapshot did not end in time.
        """
        with self._changed:
            if not self._wait_for(lambda: self._inside is None, timeout_s):
                raise UnavailableError(SNAPSHOT_RUNS)
            self._inside = _SNAPSHOT
            self._delay_ms = 0.0

    def open(self, held_up_ms: float = 0.0) -> None:
        """End what `close` began.

        Args:
            held_up_ms: for how long the snapshot kept the whole process from running.
        """
        with self._changed:
            self._delay_ms = max(self._delay_ms, held_up_ms)
        self._leave()

    @property
    def delay_ms(self) -> float:
        """The longest time in milliseconds for which the last snapshot held up a batch."""
        with self._changed:
            return self._delay_ms

    def _wait_for(self, is_free: Callable[[], bool], timeout_s: float | None = None) -> bool:
        self._waiting += 1
        try:
            return self._changed.wait_for(is_free, timeout_s)
        finally:
            self._waiting -= 1

    def _delayed(self, since_s: float) -> None:
        delay_ms = (time.monotonic() - since_s) * 1000
        with self._changed:
            self._delay_ms = max(self._delay_ms, delay_ms)

    def _leave(self) -> None:
        with self._changed:
            self._inside = None
            self._changed.notify_all()
