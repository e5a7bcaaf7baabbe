"""Plans a rescale from the sizes in a checkpoint's metadata. Pure."""

from __future__ import annotations

from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, SlotState
from statefulspark.checkpoint.restore.sources import Source, sources_of
from statefulspark.coordinator.slots.rescales import RescalePlan, SlotPlan
from statefulspark.keygroups import KeyGroupRange, moves, ranges


def plan_rescale(base: CheckpointMetadata | None, max_parallelism: int, before: int, after: int) -> RescalePlan:
    """Return the plan from which the slots of the new parallelism are built.

    Args:
        base: The checkpoint that they would restore; None if there is none yet.
        max_parallelism: Key groups of the job.
        before: Slots now, 1 .. max_parallelism.
        after: Slots then, 1 .. max_parallelism.

    Raises:
        InvalidInputError: A parallelism is out of bounds.
    """
    owned = ranges(after, max_parallelism)
    known = base is not None and before != after
    return RescalePlan(
        from_parallelism=before,
        to_parallelism=after,
        max_parallelism=max_parallelism,
        moved_key_groups=moves(max_parallelism, before, after),
        checkpoint=base.checkpoint_id if base is not None else None,
        slots=tuple(_slot(base, slot, key_groups) for slot, key_groups in enumerate(owned)) if base is not None and known else (),
    )


def _slot(base: CheckpointMetadata, slot: int, key_groups: KeyGroupRange) -> SlotPlan:
    sources = sources_of(base, key_groups)
    opened = sources.opened
    cut = opened.slot.key_groups.count - opened.shared.count if opened is not None else 0
    return SlotPlan(
        slot=slot,
        first=key_groups.first,
        last=key_groups.last,
        opened=opened.slot.slot if opened is not None else None,
        fetch_bytes=sum(_bytes_of(source.slot) for source in sources.all),
        cut_key_groups=cut,
        cut_bytes=_share(opened, cut) if opened is not None else 0,
        merged_key_groups=sum(source.shared.count for source in sources.copied),
        merged_bytes=sum(_share(source, source.shared.count) for source in sources.copied),
    )


def _share(source: Source, key_groups: int) -> int:
    """Bytes of so many of the old slot's key groups."""
    return round(_bytes_of(source.slot) * key_groups / source.slot.key_groups.count)


def _bytes_of(slot: SlotState) -> int:
    inline = slot.inline.size_bytes if slot.inline is not None else 0
    return sum(file.size_bytes for file in slot.files) + inline
