"""Memory breakdown of a job's pods, in the status."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from statefulspark_operator.api.base import Count, Message, ShortText, StatusModel


class MemoryPart(StatusModel):
    """A part of a pod's memory."""

    name: ShortText
    """Purpose of the part."""

    size_bytes: Count
    """Size in bytes."""


class PodMemory(StatusModel):
    """Memory of a pod. The parts add up to the limit."""

    limit_bytes: Count
    """Request and limit of the container."""

    parts: Annotated[tuple[MemoryPart, ...], Field(max_length=32)] = ()
    """The breakdown."""


class MemoryPlan(StatusModel):
    """Memory of driver and executors, as calculated by the runtime."""

    driver: PodMemory | None = None
    """The driver pod."""

    executor: PodMemory | None = None
    """Each executor pod."""

    managed_bytes_per_slot: Count | None = None
    """Managed memory of each slot's state backend, in bytes."""

    warnings: Annotated[tuple[Message, ...], Field(max_length=16)] = ()
    """Warnings about too much or too little memory, with the fields to change."""
