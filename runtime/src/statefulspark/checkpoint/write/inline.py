"""Checkpoints of the memory backend: entries that travel to the coordinator and lie within ``_metadata``, and what bounds them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from statefulspark.checkpoint.formats.metadata import InlineEntries, SlotState
from statefulspark.errors import InternalError, InvalidInputError
from statefulspark.sizes import short_size
from statefulspark.state.encoding.entries import RECORD_OVERHEAD_BYTES, read_entries
from statefulspark.state.encoding.layout import StateInfo, state_id_of

_REMEDY: Final = "Raise it, or use type: filesystem or rocksdb"


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineLimits:
    """Bounds of what slots send to the coordinator instead of storing it; those of state are Flink's. An entry counts with its key, its value and 8 bytes, as it lies in a checkpoint.

    Attributes:
        state_bytes: Most bytes of one state of one step in one slot.
        checkpoint_bytes: Most bytes of all states of all slots (at most 32 MiB).
        changelog_bytes: Largest changelog that a slot sends to the coordinator instead of storing it (at most 1 MiB; 0 for none).
    """

    state_bytes: int = 5 << 20
    checkpoint_bytes: int = 10 << 20
    changelog_bytes: int = 0


DEFAULT_LIMITS: Final = InlineLimits()
"""Flink's defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinePart:
    """A slot's entries and what they consist of.

    Attributes:
        entries: None if they alone exceed what a checkpoint may have; the coordinator then refuses the checkpoint by the sizes.
        state_bytes: Bytes of each state, by id.
    """

    entries: InlineEntries | None
    state_bytes: dict[int, int]


def inline_part(file: Path, max_bytes: int) -> InlinePart:
    """Read and measure a slot's part of a checkpoint.

    Args:
        file: ``entries`` of a snapshot.
        max_bytes: The bytes of a part with more are not read.

    Raises:
        CorruptDataError: The file is damaged.
        OSError: The file cannot be read.
    """
    sizes: defaultdict[int, int] = defaultdict(int)
    for key, value in read_entries(file):
        sizes[state_id_of(key)] += RECORD_OVERHEAD_BYTES + len(key) + len(value)
    fits = sum(sizes.values()) <= max_bytes
    return InlinePart(entries=InlineEntries.of(file.read_bytes()) if fits else None, state_bytes=dict(sizes))


def check_inline(
    checkpoint_id: int,
    slots: Iterable[SlotState],
    state_bytes: Mapping[int, Mapping[int, int]],
    states: Iterable[StateInfo],
    limits: InlineLimits,
) -> None:
    """Check a checkpoint whose parts are inline, before it is published.

    Args:
        checkpoint_id: Its number, for the message.
        slots: The parts of all slots.
        state_bytes: Bytes of each state by id, per slot with an inline part.
        states: The states of the job.
        limits: What bounds them.

    Raises:
        InvalidInputError: A state in a slot, or all of them, exceed a limit. Names the largest one.
        InternalError: A part is missing although it is within the limits.
    """
    names = {state.state_id: f"{state.name!r} of uid {state.uid!r}" for state in states}
    each = [(size, slot, state) for slot, sizes in state_bytes.items() for state, size in sizes.items()]
    largest, slot, state = max(each, default=(0, 0, 0))
    if largest > limits.state_bytes:
        raise InvalidInputError(
            f"checkpoint {checkpoint_id}: state {names.get(state, state)} takes {short_size(largest, up=True)} in slot {slot}, more than"
            f" stateBackend.memory.maxStateSize = {short_size(limits.state_bytes)}",
            remedy=_REMEDY,
        )
    totals: Counter[int] = Counter()
    for size, _, state_id in each:
        totals[state_id] += size
    if totals.total() > limits.checkpoint_bytes:
        state, size = totals.most_common(1)[0]
        raise InvalidInputError(
            f"checkpoint {checkpoint_id}: {short_size(totals.total(), up=True)} in all, more than stateBackend.memory.maxCheckpointSize ="
            f" {short_size(limits.checkpoint_bytes)}; the largest: {names.get(state, state)}, {short_size(size, up=True)}",
            remedy=_REMEDY,
        )
    missing = [part.slot for part in slots if part.slot in state_bytes and part.inline is None]
    if missing:
        raise InternalError(f"checkpoint {checkpoint_id}: the entries of slot {missing[0]} are not here")
