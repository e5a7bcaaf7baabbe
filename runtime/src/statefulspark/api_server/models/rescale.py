"""Rescales as the API shows them: models with the descriptions of its OpenAPI document."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from statefulspark.keygroups import MAX_PARALLELISM_LIMIT

Parallelism = Annotated[int, Field(ge=1, le=MAX_PARALLELISM_LIMIT, description="1 to the job's max_parallelism.", examples=[3])]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)


class RescaleRequest(BaseModel):
    """The new number of slots."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parallelism: Parallelism


class SlotPlanModel(_Answer):
    """Sources of a slot of the new parallelism. Bytes are those of the checkpoint's files."""

    slot: int = Field(examples=[1])
    first: int = Field(description="First key group, inclusive.", examples=[43])
    last: int = Field(description="Last key group, inclusive.", examples=[85])
    opened: int | None = Field(
        description="Old slot whose store is opened; null if all entries are copied into an empty one.", examples=[1]
    )
    fetch_bytes: int = Field(
        description="Of all files that the slot needs. Those that are still on its machine are not downloaded.", examples=[1_073_741_824]
    )
    cut_key_groups: int = Field(description="Key groups of the opened store that the slot does not own: they are deleted.", examples=[42])
    cut_bytes: int = Field(description="Estimate: bytes as spread evenly over the key groups of an old slot.", examples=[352_321_536])
    merged_key_groups: int = Field(description="Key groups whose entries are copied from other old slots' stores.", examples=[21])
    merged_bytes: int = Field(description="Estimate, as `cut_bytes`.", examples=[176_160_768])


class _RescaleModel(_Answer):
    from_parallelism: int = Field(examples=[2])
    to_parallelism: int = Field(examples=[3])
    moved_key_groups: int = Field(description="Key groups that another slot owns then.", examples=[63])
    fetch_bytes: int = Field(
        description="Of all slots; an old slot's files count once per new slot that needs them.", examples=[1_610_612_736]
    )
    cut_bytes: int = Field(description="Of all slots; an estimate.", examples=[528_482_304])
    merged_bytes: int = Field(description="Of all slots; an estimate.", examples=[176_160_768])


class RescalePlanModel(_RescaleModel):
    """What a rescale would do, as of the last checkpoint."""

    max_parallelism: int = Field(description="Number of key groups.", examples=[128])
    checkpoint: int | None = Field(
        description="Checkpoint whose files have these sizes; null if there is none yet, so that no bytes are known.", examples=[17]
    )
    slots: list[SlotPlanModel] = Field(description="Empty if the parallelism stays, or if there is no checkpoint.")


class RescaleModel(_RescaleModel):
    """A rescale that was carried out; sizes as of the checkpoint that the new slots restored."""

    completed_ms: Annotated[
        int, Field(description="When the pause ended; milliseconds since the epoch (UTC).", examples=[1_790_000_000_000])
    ]
    pause_ms: int | None = Field(
        description="From the end of the last batch before to the commit of the first one after; without rows for a batch, until all slots "
        "were ready. null if they were not ready within `timeout_s`, or no batch was committed within 60 s of that.",
        examples=[3_900],
    )
