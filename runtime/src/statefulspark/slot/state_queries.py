"""StateQueries: reads single keys of a slot's state for users, beside batches and snapshots."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Final

from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.rpc.messages.state_queries import ReadState, StateEntries, StoredEntry
from statefulspark.slot.keyed_step import KeyedStep
from statefulspark.slot.store_gate import StoreGate
from statefulspark.state.store.committed_entries import CommittedEntries

_WAIT_S: Final = 5.0
"""A query waits this long for its turn, and until what is committed is in the store."""
_PAUSE_S: Final = 0.01
_READ_S: Final = 0.05
"""After this long a query answers with the entries that it has: batches that begin wait for it."""
_AT_ONCE: Final = 4
"""Queries that wait; further ones are refused, so that they do not take the threads of the server."""


class StateQueries:
    """Reads what committed batches have left. One query reads at a time.

    A step that no batch uses first writes what its last batch changed, if that is committed, as the next batch would. While a batch runs, the
    store and what is held over it is the state before that batch. The query reads it under the gate of the store, which keeps others from
    changing it for that time; their turn comes before the next query's.

    Args:
        gate: Of the slot's store.
        keyed_steps: By uid.
        settle: Writes what is committed of a step, unless a batch or a snapshot is in the way: then it returns False. Takes the uid and the batch.
        clock: Monotonic, in seconds.
    """

    def __init__(
        self,
        gate: StoreGate,
        keyed_steps: Mapping[str, KeyedStep],
        settle: Callable[[str, int], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate = gate
        self._keyed_steps = keyed_steps
        self._settle = settle
        self._clock = clock
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(_AT_ONCE)

    def read(self, request: ReadState) -> StateEntries:
        """Read the entries of a key.

        Raises:
            InvalidInputError: The slot does not run the step.
            UnavailableError: Batches or a snapshot keep the state busy, or the slot has not caught up with the committed batch.
        """
        if request.uid not in self._keyed_steps:
            raise InvalidInputError(f"the job has no keyed step {request.uid!r}", field="uid")
        if not self._places.acquire(blocking=False):
            raise UnavailableError(f"the slot answers {_AT_ONCE} state queries already. Retry when one has ended")
        try:
            deadline = self._clock() + _WAIT_S
            if not self._turn.acquire(timeout=_WAIT_S):
                raise UnavailableError("other state queries took too long. Retry when they have ended")
            try:
                return self._read(request, deadline)
            finally:
                self._turn.release()
        finally:
            self._places.release()

    def _read(self, request: ReadState, deadline: float) -> StateEntries:
        keyed_step = self._keyed_steps[request.uid]
        while True:
            settled = self._settle(request.uid, request.expected)
            with self._gate.reading(max(0.0, deadline - self._clock())):
                # The backend is replaced when the step catches up.
                committed = keyed_step.backend.committed(request.expected)
                if committed is not None:
                    return self._entries(committed, request)
            # Settled and not there: another incarnation or attempt has processed the batch, and the next one catches up.
            if settled or self._clock() > deadline:
                raise UnavailableError(
                    f"the slot has not applied batch {request.expected} of uid {request.uid!r} yet, which happens when the next batch begins. Retry then"
                )
            time.sleep(_PAUSE_S)

    def _entries(self, committed: CommittedEntries, request: ReadState) -> StateEntries:
        if request.end is None:
            value = committed.get(request.first)
            found = () if value is None else (_entry(request.first, value, request.bytes_max),)
            return StateEntries(entries=found, more=False)
        with closing(committed.scan(request.first, request.end)) as stored:
            return self._up_to_bounds(stored, request)

    def _up_to_bounds(self, stored: Iterator[tuple[bytes, bytes]], request: ReadState) -> StateEntries:
        until = self._clock() + _READ_S
        entries: list[StoredEntry] = []
        left = request.bytes_max
        for key, value in stored:
            if len(entries) == request.entries_max or (entries and (len(value) > left or self._clock() > until)):
                return StateEntries(entries=tuple(entries), more=True)
            entries.append(_entry(key, value, left))
            left -= len(value)
        return StateEntries(entries=tuple(entries), more=False)


def _entry(key: bytes, value: bytes, bytes_max: int) -> StoredEntry:
    return StoredEntry(key=key, value=value if len(value) <= bytes_max else None, size_bytes=len(value))
