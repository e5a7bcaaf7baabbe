"""Leader election by a Lease: of all replicas one acts.

kopf's own peering is by priority and freezes on equal ones.

The holder renews it again and again; whoever sees the same lease unchanged for its duration, by its own clock, takes it. The holder stops
acting when it could not renew for the renew deadline, which is shorter: two never act at once as long as their clocks run equally fast.
Source: client-go's leader election, whose fields, defaults and words this follows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from statefulspark.errors import ConflictError, StatefulSparkError
from statefulspark_operator.clients.kubernetes import Cluster, Tree

_log = structlog.get_logger("statefulspark.operator.leader")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Times of the election, in seconds."""

    duration_s: int
    """Others take over when the lease was not renewed for so long."""
    renew_deadline_s: float
    """The holder stops acting when it could not renew for so long."""
    retry_s: float
    """Pause between two tries."""


class Leadership:
    """Whether this replica may act.

    Args:
        cluster: Where the lease is.
        namespace: Of the lease.
        name: Of the lease.
        identity: This replica's name; unique.
        times: Of the election.
        changed: Told when this replica begins or ceases to lead.
    """

    def __init__(
        self, cluster: Cluster, *, namespace: str, name: str, identity: str, times: LeaseTimes, changed: Callable[[bool], None]
    ) -> None:
        self._times = times
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._changed = changed
        self._until_s = 0.0
        self._led = False
        self._lapsed = False
        self._seen: tuple[str, float] = ("", 0.0)

    def holds(self) -> bool:
        """Whether this replica leads, with time enough for an action."""
        held = time.monotonic() < self._until_s
        # Who is turned away here does not ask again: when a late renewal succeeds after all, everything is to be looked at anew.
        self._lapsed = self._lapsed or (self._led and not held)
        return held

    async def run(self) -> None:
        """Hold or try to get the lease until cancelled; then give it back."""
        try:
            while True:
                try:
                    await self._round()
                except ConflictError:
                    pass  # somebody else was faster
                except StatefulSparkError as error:
                    _log.warning("the lease cannot be renewed", error=str(error)[:300])
                self._tell()
                await asyncio.sleep(self._times.retry_s)
        finally:
            await self._release()

    def _tell(self) -> None:
        leads = self.holds()
        if leads != self._led or (leads and self._lapsed):
            self._led, self._lapsed = leads, False
            _log.info("leads" if leads else "does not lead", identity=self._identity)
            self._changed(leads)

    async def _round(self) -> None:
        asked_s = time.monotonic()
        lease = await self._cluster.get("coordination.k8s.io/v1", "Lease", self._namespace, self._name)
        if lease is None:
            if await self._cluster.create(self._lease(None)):
                self._until_s = asked_s + self._times.renew_deadline_s
            return
        holder = lease["spec"].get("holderIdentity") or ""
        version = lease["metadata"]["resourceVersion"]
        if holder == self._identity:
            await self._cluster.replace(self._lease(lease))
            self._until_s = asked_s + self._times.renew_deadline_s
            return
        self._until_s = 0.0
        if self._seen[0] != version:
            self._seen = (version, asked_s)
        duration_s = lease["spec"].get("leaseDurationSeconds") or self._times.duration_s
        if holder and asked_s - self._seen[1] < duration_s:
            return
        await self._cluster.replace(self._lease(lease))
        self._until_s = asked_s + self._times.renew_deadline_s

    def _lease(self, before: Tree | None) -> Tree:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Tree = dict(before["spec"]) if before is not None else {"leaseTransitions": 0, "acquireTime": now}
        if before is not None and spec.get("holderIdentity") != self._identity:
            spec |= {"leaseTransitions": (spec.get("leaseTransitions") or 0) + 1, "acquireTime": now}
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": self._times.duration_s, "renewTime": now}
        metadata = {"name": self._name, "namespace": self._namespace}
        if before is not None:
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    async def _release(self) -> None:
        """Let the next one take over at once."""
        if not self.holds():
            return
        self._until_s = 0.0
        try:
            lease = await self._cluster.get("coordination.k8s.io/v1", "Lease", self._namespace, self._name)
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                await self._cluster.replace(lease)
        except StatefulSparkError as error:
            _log.info("the lease runs out by itself", error=str(error)[:200])
