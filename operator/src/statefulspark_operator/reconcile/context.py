"""Context of the reconcilers: clients, the object cache, and the operator's settings that concern jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.state_backend import StateBackendType
from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.clients.drivers import Drivers
from statefulspark_operator.clients.events import EventRecorder
from statefulspark_operator.clients.kubernetes import Cluster, Tree
from statefulspark_operator.reconcile.credentials import JobSecrets
from statefulspark_operator.reconcile.job.observe.observation import Refusal
from statefulspark_operator.reconcile.object_cache import ObjectCache
from statefulspark_operator.reconcile.specs import CheckedSpecs
from statefulspark_operator.reconcile.tenancy import Tenancy


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileContext:
    """Clients, cache and settings shared by all reconciliations of one operator process."""

    cluster: Cluster
    drivers: Drivers
    secrets: JobSecrets
    cache: ObjectCache
    events: EventRecorder
    namespace_terminating: Callable[[str], Awaitable[bool]]
    """True for a namespace that is being deleted or gone."""
    disruption_budgets: str | None
    """API version of pod disruption budgets that the cluster serves; None if it serves none."""
    job_api_from: tuple[Tree, ...] | None = None
    """Peers that the network policy of each job lets reach the driver's API; None if jobs get no policy."""
    tenancy: Tenancy = field(default_factory=Tenancy)
    specs: CheckedSpecs = field(default_factory=CheckedSpecs)
    name_conflicts: dict[str, str] = field(default_factory=dict)
    """By job UID: why its children could not be created because an object of another owner has the name."""
    refusals: dict[str, Refusal] = field(default_factory=dict)
    """Refusals of the driver's pod by the API server, by job UID."""
    executor_checks: dict[str, tuple[datetime, Failure | None]] = field(default_factory=dict)
    """Times and results of the last dry runs for executors, by job UID."""
    default_image: str | None = None
    """Image of jobs that name none. Without a default such jobs are invalid."""
    default_state_backend: str = StateBackendType.ROCKSDB
    """State backend of new jobs that name none."""
    creates_service_accounts: bool = True
    """True if this operator creates service accounts; otherwise jobs must name theirs."""

    def image(self, spec: StatefulSparkJobSpec) -> str | None:
        """The image of a job's pods."""
        return spec.image or self.default_image
