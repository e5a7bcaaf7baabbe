"""Limits for tenants: which storage locations and endpoints jobs and snapshots may use. Pure: nothing is resolved or contacted.

The operator never accesses storage; a job's own pods do, with the job's identity. So these limits do not protect the operator but separate
tenants: an administrator configures the allowed locations, and addresses that are never an object store are always rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.snapshot import StateSnapshotSpec
from statefulspark.config.values.addresses import address_of, is_metadata
from statefulspark.config.values.locations import SCHEMES, is_below

EVERYWHERE: Final = tuple(f"{scheme}://" for scheme in SCHEMES)
_NEVER: Final = (
    "localhost",
    "localhost.localdomain",
    "ip6-localhost",
    "*.localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.*",
)
"""Names of the local machine and the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """Limits for tenants, from the operator's settings."""

    own_namespace: str | None = None
    """The operator's namespace, where it runs no jobs: a job there could read the operator's token."""
    locations: tuple[str, ...] = EVERYWHERE
    """URL prefixes of the places that jobs and snapshots may name; ``{namespace}`` stands for theirs."""
    snapshot_locations: tuple[str, ...] = ()
    """Further places, beside the job's own folders, where a StateSnapshot may put a savepoint or dispose of one."""
    endpoints: tuple[str, ...] = ("*",)
    """Host names of the object stores that jobs may name; ``*`` stands for anything."""
    api_server: str | None = None
    """Host of the API server."""

    def job_problem(self, namespace: str, spec: StatefulSparkJobSpec) -> str | None:
        """Reason for which a job is not allowed to run, with field and remedy; None if it is allowed."""
        if namespace == self.own_namespace:
            return f"metadata.namespace: {namespace} is the operator's own namespace. Create the job in another namespace"
        return next(self._job_problems(namespace, spec), None)

    def _job_problems(self, namespace: str, spec: StatefulSparkJobSpec) -> Iterator[str]:
        checkpointing = spec.checkpointing
        places = {
            "spec.checkpointing.dir": checkpointing.dir,
            "spec.checkpointing.savepointDir": checkpointing.savepoint_dir,
            "spec.checkpointing.sparkLocation": checkpointing.spark_location,
            "spec.initialSavepointPath": spec.initial_savepoint_path,
        }
        for field, url in places.items():
            if url is not None and not self._allowed(namespace, url):
                yield f"{field}: this location is not allowed by the operator's storageLocations ({self._listed(namespace)}). Use one of them"
        endpoint = checkpointing.storage.endpoint
        if endpoint is not None and (problem := self._endpoint_problem(endpoint)) is not None:
            yield f"spec.checkpointing.storage.endpoint: {problem}"

    def snapshot_problem(self, namespace: str, spec: StateSnapshotSpec) -> str | None:
        """Reason for which the path of a snapshot is not allowed for any job; None if it is allowed."""
        source = spec.savepoint or spec.checkpoint
        if source is None or source.path is None or self._allowed(namespace, source.path):
            return None
        kind = "savepoint" if spec.savepoint is not None else "checkpoint"
        return f"spec.{kind}.path: this location is not allowed by the operator's storageLocations ({self._listed(namespace)}). Use one of them"

    def initial_problem(self, namespace: str, snapshot: str, path: str) -> str | None:
        """Reason for which a job may not start from the StateSnapshot that ``spec.initialSnapshot`` names, by its path; None if it may.

        A snapshot's path is in its status, often as a driver told it, and so no more trustworthy than one that a tenant writes down.
        """
        if self._allowed(namespace, path):
            return None
        return (
            f"spec.initialSnapshot: StateSnapshot {snapshot} is in a place that is not among those that the operator allows"
            f" ({self._listed(namespace)}). Name another"
        )

    def may_change(self, namespace: str, job: StatefulSparkJobSpec, url: str) -> bool:
        """True if a snapshot of ``job`` may write or dispose of a savepoint at ``url``: only below the job's directories and the operator's snapshot locations."""
        own = [each for each in (job.checkpointing.savepoint_dir, job.checkpointing.dir) if each is not None]
        return is_below(url, [*own, *(each.replace("{namespace}", namespace) for each in self.snapshot_locations)])

    def savepoint_places(self, namespace: str) -> tuple[str, ...] | None:
        """The places to which a driver limits the targets of savepoints; None if all storage is allowed."""
        return None if self.locations == EVERYWHERE else tuple(each.replace("{namespace}", namespace) for each in self.locations)

    def _allowed(self, namespace: str, url: str) -> bool:
        return is_below(url, [each.replace("{namespace}", namespace) for each in self.locations])

    def _listed(self, namespace: str) -> str:
        return ", ".join(each.replace("{namespace}", namespace) for each in self.locations) or "none"

    def _endpoint_problem(self, endpoint: str) -> str | None:
        host = (urlsplit(endpoint).hostname or "").rstrip(".").lower()
        if _never(host) or host == (self.api_server or "").lower():
            return f"{host} is a loopback address, the API server or a metadata service. Use the address of an object store"
        if any(fnmatchcase(host, pattern.lower()) for pattern in self.endpoints):
            return None
        return f"{host} is not allowed by the operator's storageEndpoints ({', '.join(self.endpoints) or 'none'}). Use one of these"


def _never(host: str) -> bool:
    if any(fnmatchcase(host, pattern) for pattern in _NEVER) or is_metadata(host):
        return True
    address = address_of(host)
    return address is not None and address.is_loopback
