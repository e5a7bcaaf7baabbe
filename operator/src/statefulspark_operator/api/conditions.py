"""Conditions of a job, in the shape of every Kubernetes API (``meta/v1 Condition``)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from statefulspark_operator.api.base import Message, Reason, StatusModel, Timestamp


class ConditionType(StrEnum):
    """Types of a job's conditions."""

    VALID = "Valid"
    """The spec is valid. If False, the message names the field and the remedy; a running job is not affected."""
    READY = "Ready"
    """The job is in the desired state: running with the current spec, or suspended."""
    RUNNING = "Running"
    """The driver is processing batches."""
    PROGRESSING = "Progressing"
    """A transition is in progress: deploy, upgrade, rescale, suspend, recover, rollback or delete."""
    DEGRADED = "Degraded"
    """The job is running with problems: missing slots, failing batches or checkpoints, or the last stable spec after a rollback."""
    STALLED = "Stalled"
    """The operator cannot proceed without intervention. The job may be running, for example the last stable spec after a rollback."""
    RECONCILING = "Reconciling"
    """The job is neither in the desired state nor stalled: the operator is working on it. For tools that read kstatus."""


class ConditionStatus(StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """A condition of the object."""

    type: ConditionType
    """Valid, Ready, Running, Progressing, Degraded, Stalled or Reconciling."""

    status: ConditionStatus
    """True, False or Unknown."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the spec that the condition refers to."""

    last_transition_time: Timestamp
    """Time when the status of the condition last changed."""

    reason: Reason
    """Machine-readable reason in CamelCase."""

    message: Message
    """Human-readable message."""
