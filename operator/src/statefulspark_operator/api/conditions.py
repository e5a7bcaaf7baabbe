"""Conditions of a job, in the shape of every Kubernetes API (``meta/v1 Condition``)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from statefulspark_operator.api.base import Message, Reason, StatusModel, Timestamp


class ConditionType(StrEnum):
    """What conditions say of a job."""

    VALID = "Valid"
    """The spec can be acted on; False names field and remedy, and what runs goes on as it is."""
    READY = "Ready"
    """What the spec asks for is there: the job runs with this spec, or is suspended as asked."""
    RUNNING = "Running"
    """Batches are being run."""
    PROGRESSING = "Progressing"
    """The operator is changing something: starting, upgrading, rescaling, stopping."""
    DEGRADED = "Degraded"
    """It runs, but not as it should: slots lost, checkpoints failing, an older spec after a rollback."""
    STALLED = "Stalled"
    """Nothing will happen by itself any more; a person must act."""


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """One statement about the object, and since when it holds."""

    type: ConditionType
    """Valid, Ready, Running, Progressing, Degraded or Stalled."""

    status: ConditionStatus
    """True, False or Unknown."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the spec that this was found out about."""

    last_transition_time: Timestamp
    """When status changed last."""

    reason: Reason
    """One CamelCase word for programs."""

    message: Message
    """A sentence for people."""
