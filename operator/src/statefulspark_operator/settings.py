"""Settings of the operator process, read once from its environment; the chart sets every one of these variables. Pure.

Each variable is the prefix ``STATEFULSPARK_OPERATOR_`` and the field's name in capitals. Durations and lists are written as in a manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from statefulspark.config.durations import Duration, at_least
from statefulspark.config.problems import Problem, as_invalid_input, conflicting

PREFIX: Final = "STATEFULSPARK_OPERATOR_"

Port = Annotated[int, Field(ge=1, le=65_535)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """The least important lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class OperatorSettings(BaseModel):
    """What the operator process is told by whoever starts it. Attribute docstrings say meaning, unit and how to switch it off."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    namespace: Name
    """Namespace of the operator itself: its Lease and its canary are there."""

    pod_name: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    """Name of its pod: its identity as a leader."""

    watch_namespaces: tuple[Name, ...] = ()
    """Namespaces whose jobs it looks after, separated by commas; all when empty."""

    leader_election: bool = True
    """Act only while holding the Lease; false for a single process that nobody replaces while it runs."""

    lease_name: Name = "statefulspark-operator"
    """Name of the Lease (coordination.k8s.io)."""

    lease_duration: Annotated[Duration, at_least("2s")] = 12_000
    """Another replica takes over when the Lease was not renewed for so long."""

    lease_renew_deadline: Annotated[Duration, at_least("1s")] = 8_000
    """The leader stops acting when it could not renew for so long; shorter than lease_duration, or two would act at once."""

    lease_retry_period: Annotated[Duration, at_least("100ms")] = 2_000
    """Pause between two tries to get or renew the Lease; shorter than lease_renew_deadline."""

    health_port: Port = 8080
    """HTTP: GET /healthz (alive: the loop turns and the canary was seen) and GET /readyz (started, API server reached)."""

    metrics_port: Port = 9090
    """HTTP: GET /metrics, Prometheus text."""

    webhook_enabled: bool = True
    """Serve the validating webhook."""

    webhook_port: Port = 9443
    """HTTPS: POST /validate, AdmissionReview v1 of jobs and snapshots."""

    webhook_certificates: Path = Path("/etc/statefulspark/webhook")
    """Folder with tls.crt and tls.key, read again when they change."""

    canary: bool = True
    """Keep a suspended StatefulSparkJob with the label statefulspark.io/canary in the operator's namespace and touch it, to see that
    changes still arrive; false leaves that out of /healthz."""

    canary_timeout: Annotated[Duration, at_least("5s")] = 60_000
    """A touch of the canary that is not seen within this time makes /healthz fail."""

    reconcile_interval: Annotated[Duration, at_least("1s")] = 30_000
    """Each job is looked at again after this time even when nothing happened; changes of objects and pods are seen at once."""

    reconcile_parallelism: Annotated[int, Field(ge=1, le=1000)] = 50
    """Jobs that are worked on at the same time."""

    job_image: Annotated[str, StringConstraints(max_length=4096)] | None = None
    """Image of jobs whose spec names none; such jobs are invalid when empty."""

    manage_job_rbac: bool = True
    """Make a service account, role and role binding for each job that names no service account; false makes such jobs invalid."""

    log_level: LogLevel = LogLevel.INFO
    """debug, info, warning or error."""

    log_format: LogFormat = LogFormat.JSON
    """json, or text for a person at a terminal."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings from an environment; a variable that is there but empty counts as not there.

        Raises:
            InvalidInputError: A variable with the prefix is unknown, missing or wrong; one sentence for each.
        """
        given = {name.removeprefix(PREFIX).lower(): value.strip() for name, value in environ.items() if name.startswith(PREFIX)}
        known: dict[str, object] = {name: value for name, value in given.items() if value}
        if "watch_namespaces" in known:
            known["watch_namespaces"] = [each.strip() for each in given["watch_namespaces"].split(",") if each.strip()]
        try:
            return cls.model_validate(known)
        except ValidationError as error:
            raise as_invalid_input(error, cls) from None

    @model_validator(mode="after")
    def _check_conflicts(self) -> Self:
        found = tuple(self._conflicts())
        if found:
            raise conflicting(found)
        return self

    def _conflicts(self) -> Iterator[Problem]:
        if not self.lease_retry_period < self.lease_renew_deadline < self.lease_duration:
            yield Problem(
                "lease_renew_deadline", "does not lie between lease_retry_period and lease_duration", "Use for example 2s, 8s and 12s"
            )
        ports = [self.health_port, self.metrics_port, self.webhook_port]
        if len(set(ports)) < len(ports):
            yield Problem("webhook_port", "health, metrics and webhook share a port", "Use three ports")
