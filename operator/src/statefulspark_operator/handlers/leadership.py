"""Leader election by a Lease: only one replica reconciles.

kopf's own peering is by priority and freezes on equal ones; the leader election of the kubernetes package acts until its renewing task notices
that it is late, while here every action asks the clock.

The holder renews the Lease. A replica that has seen it unchanged for its duration, by its own clock, acquires it. The holder stops acting
if it could not renew within the renew deadline, which is shorter: two never act at once as long as their clocks run at the same rate.
Follows client-go's leader election in fields, defaults and terms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from statefulspark.errors import ConflictError, StatefulSparkError
from statefulspark_operator.clients.kubernetes import Cluster, Tree

_log = structlog.get_logger("statefulspark.operator.leader")

_RELEASE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Durations of the election, in seconds."""

    duration_s: int
    """Other replicas take over if the Lease has not been renewed for this long."""
    renew_deadline_s: float
    """The holder stops acting if it could not renew for this long."""
    retry_s: float
    """Interval between attempts."""


class Leadership:
    """Leader election of this replica.

    Args:
        cluster: Where the lease is.
        namespace: Of the lease.
        name: Of the lease.
        identity: This replica's name; unique.
        times: Of the election.
        changed: Called when this replica starts or stops leading.
        owners: References to the owner of the lease.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes,
        changed: Callable[[bool], None],
        owners: Sequence[Tree] = (),
    ) -> None:
        self._times = times
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._changed = changed
        self._owners = list(owners)
        self._until_s = 0.0
        self._led = False
        self._lapsed = False
        self._seen: tuple[str, float] = ("", 0.0)

    def holds(self) -> bool:
        """True if this replica leads, with enough time left for an action."""
        held = time.monotonic() < self._until_s
        # Callers that get False do not retry: if a late renewal succeeds after all, everything must be enqueued again.
        self._lapsed = self._lapsed or (self._led and not held)
        return held

    async def run(self) -> None:
        """Acquires and renews the Lease until cancelled, then releases it."""
        try:
            while True:
                try:
                    await self._round()
                except ConflictError:
                    pass  # another replica was faster
                except StatefulSparkError as error:
                    _log.warning("failed to renew the Lease", error=str(error)[:300])
                self._tell()
                await asyncio.sleep(self._times.retry_s)
        finally:
            await self._release()

    def _tell(self) -> None:
        leads = self.holds()
        if leads != self._led or (leads and self._lapsed):
            self._led, self._lapsed = leads, False
            _log.info("started leading" if leads else "stopped leading", identity=self._identity)
            self._changed(leads)

    async def _round(self) -> None:
        asked_s = time.monotonic()
        lease = await self._cluster.get("coordination.k8s.io/v1", "Lease", self._namespace, self._name)
        if lease is None:
            if not self.holds() and self._seen[0] and asked_s - self._seen[1] < self._times.duration_s:
                return  # deleted by another client, and its holder does not know yet
            if await self._cluster.create(self._lease(None)):
                self._until_s = asked_s + self._times.renew_deadline_s
            return
        holder = lease["spec"].get("holderIdentity") or ""
        version = lease["metadata"]["resourceVersion"]
        if holder == self._identity:
            await self._cluster.update(self._lease(lease))
            self._until_s = asked_s + self._times.renew_deadline_s
            return
        self._until_s = 0.0
        if self._seen[0] != version:
            self._seen = (version, asked_s)
        duration_s = lease["spec"].get("leaseDurationSeconds") or self._times.duration_s
        if holder and asked_s - self._seen[1] < duration_s:
            return
        await self._cluster.update(self._lease(lease))
        self._until_s = asked_s + self._times.renew_deadline_s

    def _lease(self, before: Tree | None) -> Tree:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Tree = dict(before["spec"]) if before is not None else {"leaseTransitions": 0, "acquireTime": now}
        if before is not None and spec.get("holderIdentity") != self._identity:
            spec |= {"leaseTransitions": (spec.get("leaseTransitions") or 0) + 1, "acquireTime": now}
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": self._times.duration_s, "renewTime": now}
        metadata: Tree = {"name": self._name, "namespace": self._namespace, "ownerReferences": self._owners}
        if before is not None:
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    async def _release(self) -> None:
        """Releases the Lease, so that another replica can take over immediately."""
        if not self.holds():
            return
        self._until_s = 0.0
        try:
            async with asyncio.timeout(_RELEASE_S):
                lease = await self._cluster.get("coordination.k8s.io/v1", "Lease", self._namespace, self._name)
                if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                    lease["spec"]["holderIdentity"] = ""
                    await self._cluster.update(lease)
        except (StatefulSparkError, TimeoutError) as error:
            _log.info("failed to release the Lease; it will expire", error=str(error)[:200])
