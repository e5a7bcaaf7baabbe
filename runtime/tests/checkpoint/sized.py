"""Metadata of checkpoints whose files have given sizes, and no contents."""

from __future__ import annotations

from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, FileRef, SlotState
from statefulspark.keygroups import slot_of

SUM = "sha256:" + "0" * 64


def checkpoint_of(max_parallelism: int, sizes: list[int]) -> CheckpointMetadata:
    """A checkpoint of one file per slot with these sizes."""
    parallelism = len(sizes)
    owned = [
        [group for group in range(max_parallelism) if slot_of(group, parallelism, max_parallelism) == slot] for slot in range(parallelism)
    ]
    slots = tuple(
        SlotState(
            slot=slot, first=owned[slot][0], last=owned[slot][-1], backend="rocksdb",
            shared=(FileRef(name="1.sst", path="../shared/1.sst", size_bytes=size, checksum=SUM),),
        )
        for slot, size in enumerate(sizes)
    )  # fmt: skip
    return CheckpointMetadata(
        job_id="flights", job_name="flights", checkpoint_id=7, kind="checkpoint", attempt=1, batch=3, max_parallelism=max_parallelism,
        parallelism=parallelism, created_ms=1, duration_ms=1, slots=slots,
    )  # fmt: skip
