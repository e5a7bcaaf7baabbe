"""OperatorEntry: one operator state of one slot, as changelogs, checkpoints and messages carry it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from statefulspark.errors import IncompatibleFormatError
from statefulspark.state.encoding.layout import StateInfo

OPERATOR_LIST: Final = "operator-list"
"""Kind of a list whose elements are split among the slots."""
OPERATOR_UNION: Final = "operator-union"
"""Kind of a list of which every slot gets all elements."""
RAW_OPERATOR: Final = "raw-operator"
"""Kind of raw operator state: a split list whose elements are partitions of bytes."""
RAW_OPERATOR_NAME: Final = "_raw_operator"
OPERATOR_BROADCAST: Final = "operator-broadcast"
"""Kind of a map of which every slot has the same copy."""
OPERATOR_KINDS: Final = frozenset({OPERATOR_LIST, OPERATOR_UNION, RAW_OPERATOR, OPERATOR_BROADCAST})

OperatorLists = Mapping[int, tuple[bytes, ...]]
"""Elements by state id. An element is a stored value (`values.ValueCodec`)."""
BroadcastEntries = Mapping[int, Mapping[bytes, bytes]]
"""Entries of broadcast state by state id. A value is a stored value."""
BroadcastChanges = Mapping[int, Mapping[bytes, bytes | None]]
"""Changed entries of broadcast state by state id; None for a removed one."""


@dataclass(frozen=True, slots=True)
class OperatorEntry:
    """One state of one slot.

    Attributes:
        slot: Number of the slot.
        state_id: Of the state.
        items: Keys and values in order; the keys of lists are empty, and None deletes a key.
        whole: True for a list, whose items replace all earlier ones. False for broadcast state, whose items are put on top of them.
    """

    slot: int
    state_id: int
    items: tuple[tuple[bytes, bytes | None], ...]
    whole: bool = True

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values."""
        return sum(len(key) + len(value or b"") for key, value in self.items)

    def elements(self, *, where: str) -> tuple[bytes, ...]:
        """Return the elements of a list.

        Args:
            where: Object that the entry was read from, for the error text.

        Raises:
            IncompatibleFormatError: It is no list.
        """
        elements = tuple(value for key, value in self.items if value is not None and not key)
        if not self.whole or len(elements) != len(self.items):
            raise IncompatibleFormatError(
                f"the operator state with id {self.state_id} is of a kind that this release does not know. Use the release that wrote it, or a later one",
                path=where,
            )
        return elements


def list_entries(slot: int, lists: OperatorLists) -> list[OperatorEntry]:
    """Return the lists of a slot as entries, by state id."""
    return [OperatorEntry(slot, state_id, tuple((b"", element) for element in lists[state_id])) for state_id in sorted(lists)]


def lists_of(entries: Iterable[OperatorEntry], slot: int, *, where: str) -> dict[int, tuple[bytes, ...]]:
    """Return the lists of one slot.

    Args:
        entries: Of any slots; of several of one state the last counts. Broadcast state is left out.
        slot: Number of the slot.
        where: Object that they were read from, for the error text.

    Raises:
        IncompatibleFormatError: One is no list.
    """
    return {entry.state_id: entry.elements(where=where) for entry in entries if entry.slot == slot and entry.whole}


def is_operator_state(info: StateInfo) -> bool:
    """True if the state belongs to slots and not to keys."""
    return info.kind in OPERATOR_KINDS


def is_broadcast(info: StateInfo) -> bool:
    """True if every slot has the same copy of the state, so that it is not distributed among them."""
    return info.kind == OPERATOR_BROADCAST


def describes_broadcast(description: Mapping[str, Any]) -> bool:
    """True if the JSON description of a state is of broadcast state, which releases before it do not know."""
    return description.get("kind") == OPERATOR_BROADCAST
