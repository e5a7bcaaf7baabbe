"""Limits for tenants: which storage locations and endpoints jobs and snapshots may use. Pure: nothing is resolved or contacted.

The operator never accesses storage; a job's own pods do, with the job's identity. So these limits do not protect the operator but separate
tenants: an administrator configures the allowed locations, and addresses that are never an object store are always rejected.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import unquote, urlsplit

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.locations import SCHEMES
from statefulspark.config.snapshot import StateSnapshotSpec

EVERYWHERE: Final = tuple(f"{scheme}://" for scheme in SCHEMES)
_NEVER: Final = (
    "localhost",
    "*.localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.*",
    "metadata",
    "metadata.google.internal",
)
"""Names of the local machine, the API server and cloud metadata services."""
_METADATA: Final = frozenset(ipaddress.ip_address(each) for each in ("100.100.100.200", "fd00:ec2::254", "168.63.129.16"))
"""Metadata services outside of the link-local range."""


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
        return _below(url, [*own, *(each.replace("{namespace}", namespace) for each in self.snapshot_locations)])

    def _allowed(self, namespace: str, url: str) -> bool:
        return _below(url, [each.replace("{namespace}", namespace) for each in self.locations])

    def _listed(self, namespace: str) -> str:
        return ", ".join(each.replace("{namespace}", namespace) for each in self.locations) or "none"

    def _endpoint_problem(self, endpoint: str) -> str | None:
        host = (urlsplit(endpoint).hostname or "").rstrip(".").lower()
        if _never(host) or host == (self.api_server or "").lower():
            return f"{host} is a loopback address, the API server or a metadata service. Use the address of an object store"
        if any(fnmatchcase(host, pattern.lower()) for pattern in self.endpoints):
            return None
        return f"{host} is not allowed by the operator's storageEndpoints ({', '.join(self.endpoints) or 'none'}). Use one of these"


def _below(url: str, folders: list[str]) -> bool:
    """True if ``url`` is one of ``folders`` or below one. Compared as stores decode it, so ``%2e`` is a dot in ``file://``."""
    place = _plain(url)
    return any(place == folder.rstrip("/") or place.startswith(f"{folder.rstrip('/')}/") for folder in map(_plain, folders))


def _plain(url: str) -> str:
    return unquote(url) if url.startswith("file:") else url


def _never(host: str) -> bool:
    if any(fnmatchcase(host, pattern) for pattern in _NEVER):
        return True
    address = _address(host)
    if address is None:
        return False
    return address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast or address in _METADATA


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is written as, in any way that resolvers take: ``0x7f000001`` and ``127.1`` are 127.0.0.1."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return _old_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def _old_address(host: str) -> ipaddress.IPv4Address | None:
    parts = host.split(".")
    try:
        numbers = [int(part, 16 if part.startswith("0x") else 8 if part.startswith("0") and part != "0" else 10) for part in parts]
    except ValueError:
        return None
    if len(numbers) > 4 or any(number > 255 or number < 0 for number in numbers[:-1]):
        return None
    value = sum(number << (24 - 8 * index) for index, number in enumerate(numbers[:-1])) + numbers[-1]
    return ipaddress.IPv4Address(value) if 0 <= value < 1 << 32 else None
