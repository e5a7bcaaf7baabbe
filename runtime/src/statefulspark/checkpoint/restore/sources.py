"""The old slots' stores from which a new slot is built. Pure.

A key begins with its key group, so the key groups of a slot are a contiguous range of a store. The old store with most of the new slot's key groups is
opened and cut to the new range; entries of the missing key groups are copied from the other old stores.
"""

from __future__ import annotations

from dataclasses import dataclass

from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, SlotState
from statefulspark.keygroups import KeyGroupRange


@dataclass(frozen=True, slots=True)
class Source:
    """An old slot, and the key groups it shares with the new one."""

    slot: SlotState
    shared: KeyGroupRange


@dataclass(frozen=True, slots=True)
class Sources:
    """The old slots of one new slot; together they have all of its key groups."""

    opened: Source | None
    """Its store is opened and cut. None for a canonical savepoint: no store opens canonical entries, so all are copied into an empty one."""
    copied: tuple[Source, ...]
    """Entries are copied from their stores."""

    @property
    def all(self) -> tuple[Source, ...]:
        """Both, in the order in which they are read."""
        return self.copied if self.opened is None else (self.opened, *self.copied)


def sources_of(metadata: CheckpointMetadata, key_groups: KeyGroupRange) -> Sources:
    """Return the sources of a slot with these key groups."""
    found = [(slot, slot.key_groups.intersect(key_groups)) for slot in metadata.slots]
    sources = [Source(slot, shared) for slot, shared in found if shared is not None]
    # Of equally good ones the smaller store: less to download and to cut off.
    sources.sort(key=lambda source: (-source.shared.count, source.slot.key_groups.count, source.slot.slot))
    return Sources(None, tuple(sources)) if metadata.is_canonical else Sources(sources[0], tuple(sources[1:]))
