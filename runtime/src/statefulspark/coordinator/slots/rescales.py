"""The plan of a rescale, and the result of the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlan:
    """Sources of a slot of the new parallelism.

    Sizes are those of the checkpoint's files. What a slot cuts or copies of a file depends on the keys in it, so these two are estimates: they take
    the bytes of an old slot as spread evenly over its key groups.
    """

    slot: int
    first: int
    """First key group, inclusive."""
    last: int
    """Last key group, inclusive."""
    opened: int | None
    """Old slot whose store is opened; None if all entries are copied into an empty one."""
    fetch_bytes: int
    """Of all files that the slot needs. Those that are still on its machine are not downloaded."""
    cut_key_groups: int
    """Key groups that the opened store has and the slot does not own: they are deleted."""
    cut_bytes: int
    merged_key_groups: int
    """Key groups whose entries are copied from other old slots' stores."""
    merged_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RescalePlan:
    """The plan of a rescale as of the last checkpoint; the rescale takes another one first, with the changes since."""

    from_parallelism: int
    to_parallelism: int
    max_parallelism: int
    moved_key_groups: int
    """Key groups that another slot will own."""
    checkpoint: int | None
    """Checkpoint whose files have these sizes; None if there is none yet, so that the plan knows no bytes."""
    slots: tuple[SlotPlan, ...]
    """Empty if the parallelism stays, or if there is no checkpoint."""

    @property
    def fetch_bytes(self) -> int:
        """Of all slots; an old slot's files count once per new slot that needs them."""
        return sum(slot.fetch_bytes for slot in self.slots)

    @property
    def cut_bytes(self) -> int:
        """Of all slots."""
        return sum(slot.cut_bytes for slot in self.slots)

    @property
    def merged_bytes(self) -> int:
        """Of all slots."""
        return sum(slot.merged_bytes for slot in self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """A rescale that was carried out; sizes as of the checkpoint that the new slots restored."""

    from_parallelism: int
    to_parallelism: int
    moved_key_groups: int
    fetch_bytes: int
    cut_bytes: int
    merged_bytes: int
    completed_ms: int
    """When the pause ended; milliseconds since the epoch."""
    pause_ms: int | None
    """From the end of the last batch before to the commit of the first one after; to the moment when all slots were ready if there were no rows for a
    batch. None if the slots were not ready within the request's time, or no batch was committed within a minute of that."""

    @classmethod
    def of(cls, plan: RescalePlan, *, completed_ms: int, pause_ms: int | None) -> Self:
        """The plan was carried out."""
        return cls(
            from_parallelism=plan.from_parallelism,
            to_parallelism=plan.to_parallelism,
            moved_key_groups=plan.moved_key_groups,
            fetch_bytes=plan.fetch_bytes,
            cut_bytes=plan.cut_bytes,
            merged_bytes=plan.merged_bytes,
            completed_ms=completed_ms,
            pause_ms=pause_ms,
        )
