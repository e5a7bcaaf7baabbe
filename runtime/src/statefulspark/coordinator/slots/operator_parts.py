"""OperatorPart: the operator state of one step in one slot, as a distribution assigns it. Pure.

Encoding and decoding take time with long lists, so the coordinator does both without its batch lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from statefulspark.checkpoint.formats.operator_state import decode_operator_file, encode_operator_file
from statefulspark.rpc.messages.slots import OperatorPart, OperatorRestore
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.operator.entries import OperatorLists, list_entries, lists_of


@dataclass(frozen=True, slots=True)
class Part:
    """Operator state of one step in one slot."""

    restored: bool
    assigned: bool
    """True until the slot has reported what its function made of the part."""
    lists: OperatorLists
    states: tuple[StateInfo, ...]


IN_STORAGE = Part(restored=True, assigned=False, lists={}, states=())
"""The slot finds its state in storage."""


@dataclass(frozen=True, slots=True)
class SlotParts:
    """Operator state that a registering slot restores."""

    slot: int
    first: int | None
    """First batch of the distribution; None before it is committed."""
    processing_time_ms: int
    parts: Mapping[str, Part]
    """By step."""

    def encoded(self) -> OperatorRestore:
        """Return the message."""
        parts = {
            uid: OperatorPart(
                restored=part.restored,
                assigned=part.assigned,
                states=part.states,
                lists=encode_operator_file(list_entries(self.slot, part.lists)),
            )
            for uid, part in self.parts.items()
        }
        return OperatorRestore(first=self.first, processing_time_ms=self.processing_time_ms, parts=parts)


def reported_lists(slot: int, reports: Mapping[str, bytes]) -> dict[str, OperatorLists]:
    """Return the parts that a slot completed, by step.

    Args:
        slot: Number of the slot.
        reports: Operator files, by step.

    Raises:
        CorruptDataError: One is damaged.
    """
    where = f"report of slot {slot}"
    return {uid: lists_of(decode_operator_file(report, path=where), slot, where=where) for uid, report in reports.items()}
