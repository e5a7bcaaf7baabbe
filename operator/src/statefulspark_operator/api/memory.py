"""What the memory of a job's pods is for, in the status."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from statefulspark_operator.api.base import Count, Message, ShortText, StatusModel


class MemoryPart(StatusModel):
    """One part of a pod's memory."""

    name: ShortText
    """What it is for."""

    size_bytes: Count
    """How much."""


class PodMemory(StatusModel):
    """Memory of one pod: the parts add up to the limit."""

    limit_bytes: Count
    """Request and limit of the container."""

    parts: Annotated[tuple[MemoryPart, ...], Field(max_length=32)] = ()
    """The breakdown."""


class MemoryPlan(StatusModel):
    """Memory of driver and executors, as the runtime's own function works it out."""

    driver: PodMemory | None = None
    """The driver pod."""

    executor: PodMemory | None = None
    """Each executor pod."""

    managed_bytes_per_slot: Count | None = None
    """Native memory of each slot's state backend."""

    warnings: Annotated[tuple[Message, ...], Field(max_length=16)] = ()
    """What is wasteful or tight, with what to change."""
