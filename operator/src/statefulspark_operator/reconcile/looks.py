"""One look at a job: observe, plan, apply. What the work queue calls, for snapshots too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from statefulspark.errors import InvalidInputError
from statefulspark_operator.api.names import API_VERSION, JOB_KIND, LABEL_CANARY
from statefulspark_operator.reconcile.apply import Hands, apply
from statefulspark_operator.reconcile.mirror import Mirror
from statefulspark_operator.reconcile.observe import observe
from statefulspark_operator.reconcile.plan import plan
from statefulspark_operator.reconcile.snapshot_looks import SnapshotLooks

WorkKey = tuple[Literal["job", "snapshot"], str, str]
"""Kind, namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a job is looked at when nothing happens."""

    settled_s: float = 30.0
    """A job with nothing under way."""
    idle_s: float = 300.0
    """A job that does not run."""


def _now() -> datetime:
    return datetime.now(UTC)


class Looks:
    """Looks at jobs and snapshots.

    Args:
        hands: What plans are carried out with.
        mirror: What watching has brought.
        may_act: Whether this replica leads; asked before every write.
        pace: How often.
        now: The time, with its zone.
    """

    def __init__(
        self, hands: Hands, mirror: Mirror, *, may_act: Callable[[], bool], pace: Pace, now: Callable[[], datetime] = _now
    ) -> None:
        self._hands = hands
        self._mirror = mirror
        self._may_act = may_act
        self._pace = pace
        self._now = now
        self._snapshots = SnapshotLooks(hands, mirror, may_act=may_act, now=now)

    async def look(self, key: WorkKey) -> float | None:
        """Look at what ``key`` names; returns after how many seconds to look again, None for never."""
        if not self._may_act():
            return None  # whoever leads looks at everything when it begins to
        kind, namespace, name = key
        return await (self._job(namespace, name) if kind == "job" else self._snapshots.look(namespace, name))

    async def _job(self, namespace: str, name: str) -> float | None:
        # A status that is older than what was written would repeat steps.
        job = self._mirror.present_job(namespace, name)
        if job is None:
            job = await self._hands.eyes.cluster.get(API_VERSION, JOB_KIND, namespace, name)
            if job is not None:
                self._mirror.wrote(job)
        if job is None or (job["metadata"].get("labels") or {}).get(LABEL_CANARY) == "true":
            return None  # the canary runs nothing, and must not keep its namespace from going
        seen = await observe(self._hands.eyes, job, self._now())
        decided = plan(seen)
        if not self._may_act():
            return None
        try:
            await apply(self._hands, job, seen, decided)
        except InvalidInputError as error:
            # What the API server refuses for good: the object says so, and it is tried again later.
            await self._hands.events.tell(job, "ApplyFailed", str(error), warning=True)
            raise
        if decided.look_again_s is not None:
            return decided.look_again_s
        return self._pace.settled_s if seen.pod is not None else self._pace.idle_s
