"""Reconciles one StatefulSparkJob: observe, plan, apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark_operator.api.names import API_VERSION, JOB_KIND, LABEL_CANARY
from statefulspark_operator.clients.kubernetes import Tree
from statefulspark_operator.reconcile.context import ReconcileContext
from statefulspark_operator.reconcile.job.apply.apply_plan import StartRefusedError, apply, release
from statefulspark_operator.reconcile.job.observe.observation import Observation, Refusal
from statefulspark_operator.reconcile.job.observe.observer import observe
from statefulspark_operator.reconcile.job.plan.actions import ApplyChildren, CheckSecrets, CreateDriver, Plan
from statefulspark_operator.reconcile.job.plan.planner import plan
from statefulspark_operator.reconcile.ownership import NameTakenError

_TERMINATING_S: Final = 2.0
"""Poll interval for a job in a namespace that is being deleted; the job is deleted within moments."""
_REPORT_S: Final = 1.0
_NAME_TAKEN_S: Final = 15.0
_NAME_CONFLICTS_MAX: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncIntervals:
    """Intervals at which a job is reconciled even if nothing changed."""

    running_s: float = 30.0
    """Interval for a job with a driver pod."""
    stopped_s: float = 300.0
    """Interval for a job without a driver pod."""


class JobReconciler:
    """Reconciles jobs.

    Args:
        context: Clients, cache and settings.
        may_act: True if this replica leads; asked before every write.
        resync: Resync intervals.
        now: The current time, with its zone.
    """

    def __init__(
        self, context: ReconcileContext, *, may_act: Callable[[], bool], resync: ResyncIntervals, now: Callable[[], datetime]
    ) -> None:
        self._context = context
        self._cache = context.cache
        self._may_act = may_act
        self._resync = resync
        self._now = now

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Reconciles one job. Returns the seconds until it must be reconciled again, or None for never."""
        # A status older than the last write would repeat steps.
        job = self._cache.current_job(namespace, name)
        if job is None:
            job = await self._context.cluster.get(API_VERSION, JOB_KIND, namespace, name)
            if job is not None:
                self._cache.record_write(job)
        if job is None or (job["metadata"].get("labels") or {}).get(LABEL_CANARY) == "true":
            return None  # the canary runs nothing and must not block the deletion of its namespace
        if self._may_be_terminating(job) and await self._context.namespace_terminating(namespace):
            return await self._release(job)
        observed = await observe(self._context, job, self._now())
        decided = plan(observed)
        if not self._may_act():
            return None
        if (retry_s := await self._apply(job, observed, decided)) is not None:
            return retry_s
        if decided.requeue_after_s is not None:
            return decided.requeue_after_s
        return self._resync.running_s if observed.pod is not None else self._resync.stopped_s

    async def _apply(self, job: Tree, observed: Observation, decided: Plan) -> float | None:
        """Executes a plan. Returns the seconds until the next attempt if a child cannot be created, otherwise None."""
        name_conflicts, refusals = self._context.name_conflicts, self._context.refusals
        try:
            await apply(self._context, job, observed, decided)
            if any(isinstance(action, ApplyChildren | CheckSecrets) for action in decided.actions):
                name_conflicts.pop(observed.uid, None)
            if any(isinstance(action, CreateDriver) for action in decided.actions):
                refusals.pop(observed.uid, None)
        except StartRefusedError as error:
            # The next plan writes the refusal into the status, and decides when to try again.
            if len(refusals) >= _NAME_CONFLICTS_MAX:
                refusals.clear()
            refusals[observed.uid] = Refusal(message=str(error), at=observed.now)
            return _REPORT_S
        except NameTakenError as error:
            # The next plan writes the conflict into the status; after that the operator retries at intervals.
            new = name_conflicts.get(observed.uid) != str(error)
            if len(name_conflicts) >= _NAME_CONFLICTS_MAX:
                name_conflicts.clear()  # including entries of deleted jobs; the others are detected again
            name_conflicts[observed.uid] = str(error)
            return _REPORT_S if new else _NAME_TAKEN_S
        except ConflictError:
            # Planned from a version that is no longer current: the watch may be behind, so the next plan starts from a read.
            self._cache.invalidate_job(observed.namespace, observed.name)
            raise
        except InvalidInputError as error:
            # A permanent rejection by the API server: record it on the object and retry later.
            await self._context.events.record(job, "ApplyFailed", str(error), warning=True)
            raise
        return None

    def _may_be_terminating(self, job: Tree) -> bool:
        """True if the job looks as during a namespace deletion, or if an object may have to be created for it."""
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        pod = self._cache.driver_pod(namespace, name)
        return is_deleting(job) or pod is None or is_deleting(pod) or not self._cache.children_intact(namespace, name)

    async def _release(self, job: Tree) -> float | None:
        """Releases a job whose namespace is being deleted. Its pods terminate at the same time, so no savepoint can be taken."""
        if not is_deleting(job):
            return _TERMINATING_S
        if self._may_act():
            await release(self._context, job)
        return None


def is_deleting(tree: Tree | None) -> bool:
    """True if the object has a deletion timestamp."""
    return tree is not None and tree["metadata"].get("deletionTimestamp") is not None
