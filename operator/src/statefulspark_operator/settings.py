"""Settings of the operator process, read once from environment variables, all of which the chart sets. Pure.

Each variable is the prefix ``STATEFULSPARK_OPERATOR_`` and the field's name in capitals. Durations and lists are written as in a manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from statefulspark.config.problems import Problem, as_invalid_input, conflicting
from statefulspark.config.state_backend import BackendName, StateBackendType
from statefulspark.config.values.durations import Duration, at_least
from statefulspark.config.values.locations import SCHEMES

PREFIX: Final = "STATEFULSPARK_OPERATOR_"

Port = Annotated[int, Field(ge=1, le=65_535)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


Place = Annotated[str, StringConstraints(max_length=1024, pattern=r"^(s3|gs|abfss|hdfs|file)://[^,]*$")]
Host = Annotated[str, StringConstraints(max_length=253, pattern=r"^[^,/\s]+$")]
_LISTS: Final = frozenset({"watch_namespaces", "storage_locations", "snapshot_locations", "storage_endpoints"})


class LogFormat(StrEnum):
    """Format of log lines."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """Minimum level of log lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class OperatorSettings(BaseModel):
    """Configuration of the operator process. Attribute docstrings give meaning, unit and how to disable a setting."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    namespace: Name
    """Namespace of the operator, with its Lease and canary."""

    pod_name: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    """Name of the operator's pod; its identity in leader election."""

    watch_namespaces: tuple[Name, ...] = ()
    """Namespaces to watch, separated by commas. Defaults to all namespaces."""

    deployment: Name | None = None
    """Deployment of the operator, in its own namespace. It owns the Lease and the canary, so that they are deleted with it."""

    leader_election: bool = True
    """Reconcile only while holding the Lease. Set to false for a single replica that is never replaced while it runs."""

    lease_name: Name = "statefulspark-operator"
    """Name of the Lease (coordination.k8s.io)."""

    lease_duration: Annotated[Duration, at_least("2s")] = 12_000
    """Another replica takes over if the Lease has not been renewed for this long."""

    lease_renew_deadline: Annotated[Duration, at_least("1s")] = 8_000
    """The leader stops reconciling if it could not renew the Lease for this long. Must be shorter than lease_duration, so that two replicas never act at once."""

    lease_retry_period: Annotated[Duration, at_least("100ms")] = 2_000
    """Interval between attempts to acquire or renew the Lease. Must be shorter than lease_renew_deadline."""

    key_secret: Name = "statefulspark-operator-key"  # noqa: S105  the name of a Secret, not its value
    """Secret in the operator's namespace with the key from which the values of the jobs' Secrets are derived. Created if it does not exist."""

    health_port: Port = 8080
    """HTTP port of GET /healthz (event loop, watches, work queue and canary make progress) and GET /readyz (started, API server reached)."""

    metrics_port: Port = 9090
    """HTTP port of GET /metrics, in Prometheus text format."""

    webhook_enabled: bool = True
    """Serve the validating webhook."""

    webhook_port: Port = 9443
    """HTTPS port of POST /validate, AdmissionReview v1 of jobs and snapshots."""

    webhook_certificates: Path = Path("/etc/statefulspark/webhook")
    """Directory with tls.crt and tls.key. Reloaded when they change."""

    canary: bool = True
    """Keep a suspended StatefulSparkJob with the label statefulspark.io/canary in the operator's namespace and update it regularly, to
    check that watches deliver events. If false, /healthz does not include this check."""

    canary_timeout: Annotated[Duration, at_least("5s")] = 60_000
    """/healthz fails if an update of the canary is not observed within this time."""

    reconcile_interval: Annotated[Duration, at_least("1s")] = 30_000
    """Resync interval: how often each running job is reconciled even if nothing changed."""

    reconcile_parallelism: Annotated[int, Field(ge=1, le=1000)] = 50
    """Number of concurrent reconciliations. A single namespace uses at most half of them, and less if other namespaces need some."""

    job_image: Annotated[str, StringConstraints(max_length=4096)] | None = None
    """Default image of jobs. If empty, jobs without spec.image are invalid."""

    default_state_backend: BackendName = StateBackendType.ROCKSDB.value
    """State backend of new jobs without stateBackend.type: memory, filesystem, rocksdb, or a class as module:Class. Jobs that have run keep theirs."""

    manage_job_rbac: bool = True
    """Create a service account, role and role binding for each job without spec.serviceAccount. If false, such jobs are invalid."""

    storage_locations: tuple[Place, ...] = tuple(f"{scheme}://" for scheme in SCHEMES)
    """URL prefixes of the locations that jobs and snapshots may use, separated by commas. {namespace} is replaced by the object's namespace.
    Only the job's own pods access these locations, never the operator."""

    snapshot_locations: tuple[Place, ...] = ()
    """URL prefixes outside of a job's own directories where its StateSnapshots may create and dispose of savepoints, separated by commas."""

    storage_endpoints: tuple[Host, ...] = ("*",)
    """Host names of the object stores that jobs may use, separated by commas; * matches anything. Loopback and link-local addresses, metadata
    services and the API server are always rejected."""

    job_api_from: tuple[dict[str, Any], ...] | None = None
    """NetworkPolicy peers, as a JSON list, that may connect to the API of drivers: this operator and metrics scrapers. Each job gets a policy
    that admits only these and its own pods. If empty, jobs get no policy."""

    log_level: LogLevel = LogLevel.INFO
    """debug, info, warning or error."""

    log_format: LogFormat = LogFormat.JSON
    """json, or text for a terminal."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """Reads the settings from environment variables. An empty variable counts as unset.

        Raises:
            InvalidInputError: A variable with the prefix is unknown, missing or wrong; one sentence for each.
        """
        given = {name.removeprefix(PREFIX).lower(): value.strip() for name, value in environ.items() if name.startswith(PREFIX)}
        known: dict[str, object] = {name: value for name, value in given.items() if value}
        for name in _LISTS & known.keys():
            known[name] = [each.strip() for each in given[name].split(",") if each.strip()]
        if "job_api_from" in known:
            known["job_api_from"] = _json_or_text(given["job_api_from"])
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
                "lease_renew_deadline",
                "must be longer than lease_retry_period and shorter than lease_duration",
                "Use for example 2s, 8s and 12s",
            )
        ports = [self.health_port, self.metrics_port, self.webhook_port]
        if len(set(ports)) < len(ports):
            yield Problem("webhook_port", "health_port, metrics_port and webhook_port must differ", "Use three different ports")


def _json_or_text(text: str) -> object:
    """Text that is not JSON stays a text, which is then refused with the field's name."""
    try:
        return json.loads(text)
    except ValueError:
        return text
