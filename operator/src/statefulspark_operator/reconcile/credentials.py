"""The Secrets of a job, which the operator may create and nothing else: what they hold it derives, their removal it leaves to Kubernetes.

Each Secret has one owner, a ConfigMap of the same name, which the job owns. To replace the Secret, the ConfigMap is deleted, the garbage
collector takes the Secret along, and both are made again; pods keep the files that they have until the kubelet sees the new ones. What the
operator must remember of a Secret is written into the ConfigMap once the Secret is made. A Secret whose ConfigMap says nothing may be
a foreign object; it stays, since what the ConfigMap does not own does not go with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from statefulspark.errors import ConflictError
from statefulspark_operator.builders import children, secret_owners
from statefulspark_operator.builders.certificates import CERTIFICATE_LIFE, new_authority, new_certificate
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.builders.keys import OperatorKey
from statefulspark_operator.clients.kubernetes import Cluster, Tree
from statefulspark_operator.reconcile.ownership import NameTakenError, check_owner

_CHECK_EVERY: Final = timedelta(minutes=15)
"""A deleted Secret is noticed by then at the latest. Secrets are not watched."""
_KNOWN_MAX: Final = 4096
_REMOVAL_TRIES: Final = 10
_REMOVAL_PAUSE_S: Final = 0.3
"""The garbage collector takes moments."""


class JobSecrets:
    """Makes and renews the Secrets of jobs, and knows what they hold.

    Args:
        cluster: Where.
        key: The operator's.
        pause: Waits for so many seconds.
    """

    def __init__(self, cluster: Cluster, key: OperatorKey, *, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._cluster = cluster
        self._key = key
        self._pause = pause
        self._checked: dict[str, datetime] = {}
        """By the uid of a job: when all of its Secrets were there."""
        self._authorities: dict[str, str] = {}
        """PEM, by the uid of a job."""

    @property
    def key_id(self) -> str:
        """Of the key that Secrets are made with."""
        return self._key.id

    def token(self, uid: str) -> str:
        """The token of the API of a job's driver."""
        return self._key.token(uid)

    def authority(self, name: str, uid: str) -> str:
        """PEM of a job's authority: one of many such certificates, which are made whenever one is needed, all of the same name and key."""
        if uid not in self._authorities:
            if len(self._authorities) >= _KNOWN_MAX:
                self._authorities.clear()
            self._authorities[uid] = new_authority(name, self._key.authority(uid), datetime.now(UTC)).certificate.decode()
        return self._authorities[uid]

    def due(self, uid: str, now: datetime) -> bool:
        """True if it is time to see to a job's Secrets."""
        checked = self._checked.get(uid)
        return checked is None or now - checked >= _CHECK_EVERY

    async def make(self, job: JobIdentity, now: datetime) -> list[str]:
        """Create the Secrets that are missing, and replace those of another key, and a certificate that is near its end.

        Returns:
            Those that had been deleted.

        Raises:
            NameTakenError: A foreign object has such a name.
            ConflictError: Another client keeps deleting them.
        """
        authority = new_authority(job.name, self._key.authority(job.uid), now)
        signed = new_certificate(authority, service=job.driver, namespace=job.namespace, now=now)
        tokens = children.secret(job, token=self._key.token(job.uid), spark_secret=self._key.spark_secret(job.uid))
        certificates = children.certificates_secret(job, authority=authority, signed=signed)
        wanted = [(tokens, secret_owners.made(self.key_id, None)), (certificates, secret_owners.made(self.key_id, now + CERTIFICATE_LIFE))]
        # All names are looked at before the first Secret is made.
        owners = [await self._owner(job, secret["metadata"]["name"]) for secret, _ in wanted]
        lost = [
            secret["metadata"]["name"]
            for (secret, says), owner in zip(wanted, owners, strict=True)
            if await self._make(job, secret, says, owner, now)
        ]
        if len(self._checked) >= _KNOWN_MAX:
            self._checked.clear()
        self._checked[job.uid] = now
        return [f"Secret {name}" for name in lost]

    async def _make(self, job: JobIdentity, secret: Tree, says: dict[str, str], owner: Tree | None, now: datetime) -> bool:
        """Returns True if the Secret had been made before and was not there any more."""
        name = secret["metadata"]["name"]
        if owner is not None and secret_owners.says(owner, says, now):
            if not await self._cluster.create(secret_owners.owned(secret, owner)):
                return False
            await self._say(job, name, says)
            return True
        if owner is not None:
            await self._remove(job, owner)
        owner = await self._new_owner(job, name)
        if not await self._created(secret_owners.owned(secret, owner)):
            await self._remove(job, owner)
            raise NameTakenError(
                f"Secret {name} exists in namespace {job.namespace} but was not created for this job, which needs that name."
                " Delete or rename it, or give the job another name"
            )
        await self._say(job, name, says)
        return False

    async def _created(self, secret: Tree) -> bool:
        """Create a Secret, as soon as the one that it replaces is gone; False when one stays."""
        for _ in range(_REMOVAL_TRIES):
            if await self._cluster.create(secret):
                return True
            await self._pause(_REMOVAL_PAUSE_S)
        return False

    async def _owner(self, job: JobIdentity, name: str) -> Tree | None:
        found = await self._cluster.get("v1", "ConfigMap", job.namespace, name)
        if found is not None:
            check_owner({**found, "kind": "ConfigMap"}, job)
        return found

    async def _new_owner(self, job: JobIdentity, name: str) -> Tree:
        await self._cluster.create(secret_owners.secret_owner(job, name))
        owner = await self._owner(job, name)
        if owner is None:
            raise ConflictError(f"ConfigMap {job.namespace}/{name} was deleted immediately after it was created")
        return owner

    async def _say(self, job: JobIdentity, name: str, says: dict[str, str]) -> None:
        await self._cluster.patch("v1", "ConfigMap", job.namespace, name, {"metadata": {}, "data": says})

    async def _remove(self, job: JobIdentity, owner: Tree) -> None:
        metadata = owner["metadata"]
        await self._cluster.delete("v1", "ConfigMap", job.namespace, metadata["name"], uid=metadata["uid"])
