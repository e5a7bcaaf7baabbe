"""The endpoint of a job's driver: address, CA and API token. The only module that combines them."""

from __future__ import annotations

from dataclasses import dataclass, field

from statefulspark.config.kubernetes.pods import API_PORT
from statefulspark_operator.reconcile.credentials import JobSecrets
from statefulspark_operator.reconcile.job.observe.observation import DriverPod


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEndpoint:
    """Address and credentials of a driver's API."""

    url: str
    token: str = field(repr=False)
    authority: str
    """PEM of the CA that signs the driver's certificate."""


def driver_endpoint(secrets: JobSecrets, name: str, uid: str, pod: DriverPod | None) -> DriverEndpoint | None:
    """The endpoint of job ``name``'s driver in ``pod``; None if none runs, or one with Secrets of another key."""
    if pod is None or pod.over or pod.ip is None or pod.phase != "Running" or pod.key_id != secrets.key_id:
        return None
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    return DriverEndpoint(url=f"https://{host}:{API_PORT}", token=secrets.token(uid), authority=secrets.authority(name, uid))
