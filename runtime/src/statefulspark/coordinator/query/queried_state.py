"""Queries of a running job's state, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from statefulspark.state.encoding.layout import StateInfo

ENTRIES_MAX: Final = 1000
"""Most entries of a map, or elements of a list, in one answer."""
BYTES_MAX: Final = 1 << 20
"""Most bytes of values that a slot reads for one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateQuery:
    """One key of one state."""

    uid: str
    state: str
    key: str
    """As `statefulspark state` prints it: a JSON list for several key columns, dates and times in ISO form, bytes in base64."""
    map_key: str | None = None
    """Only this entry of a map."""
    limit: int = 100
    """Most entries of a map, or elements of a list; 1 to `ENTRIES_MAX`."""
    after: str | None = None
    """``next`` of the answer before: continue a map after its entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriedEntry:
    """One value, list, accumulator or entry of a map."""

    value: Any
    """As JSON. Larger ones than `BYTES_MAX` are left out: a remark says so."""
    map_key: Any = None
    """As JSON; None except for maps."""
    window: Mapping[str, int] = field(default_factory=dict)
    """Of a state of windows: ``window_start_ms`` and ``window_end_ms``, or ``window_id``, and ``element`` for a row in a window."""
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriedState:
    """The state of one key after a committed batch."""

    state: StateInfo
    key_group: int
    slot: int
    committed: int
    """The last committed batch that reached the slot: the state has its changes, and may have those of batches that were committed meanwhile."""
    entries: tuple[QueriedEntry, ...]
    """Empty if the key has no state, or if it has expired by the time of the last committed batch."""
    next: str | None = None
    """Set if the map has further entries: pass it as ``after``."""
    remarks: tuple[str, ...] = ()
    """Entries that are left out, and how to read them."""


class StateReads(Protocol):
    """Reads the state of a running job. Thread-safe."""

    def states(self) -> list[StateInfo]:
        """All states that the job has declared or restored, by uid and name."""

    def read(self, query: StateQuery) -> QueriedState:
        """Read one key, as committed batches have left it.

        Raises:
            InvalidInputError: There is no such uid or state, or the text is no such key.
            UnavailableError: The slot of the key is starting, restoring, or busy; retry.
            ClosedError: The job has ended.
        """
