"""The way to a job's driver: its pod's address and the token of its API. The only place that knows both."""

from __future__ import annotations

from dataclasses import dataclass, field

from statefulspark.config.pods import API_PORT, TOKEN_KEY
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.clients.secrets import SecretValues
from statefulspark_operator.reconcile.observation import DriverPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a driver is reached."""

    url: str
    token: str = field(repr=False)


def forget_way(secrets: SecretValues, namespace: str, job: str) -> None:
    """The driver refuses the token that is known: read it anew next time."""
    secrets.forget(namespace, JobIdentity(name=job, namespace=namespace, uid="", generation=0).secret)


async def way_to_driver(secrets: SecretValues, namespace: str, job: str, pod: DriverPod | None) -> Way | None:
    """The way to the driver in ``pod``; None when none runs there, or nobody has made its token.

    Raises:
        StatefulSparkError: The API server does not give the token.
    """
    if pod is None or pod.over or pod.ip is None or pod.phase != "Running":
        return None
    identity = JobIdentity(name=job, namespace=namespace, uid="", generation=0)
    token = await secrets.value(namespace, identity.secret, TOKEN_KEY)
    return Way(url=f"http://{pod.ip}:{API_PORT}", token=token) if token is not None else None
