"""Asks the API server by a dry run if it takes an executor's pod: Spark's driver retries without limit, and only its log has the reason."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.errors import InvalidInputError, StatefulSparkError
from statefulspark_operator.api.drivers import Driver, Failure
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.builders.pods import executor_sample
from statefulspark_operator.reconcile.context import ReconcileContext
from statefulspark_operator.reconcile.job.observe.observation import DriverPod

REFUSED: Final = "PodRefused"
_EVERY: Final = timedelta(seconds=30)
_START: Final = timedelta(seconds=30)
"""Age of a driver's pod below which its executors are not missed."""
_CHECKS_MAX: Final = 4096
_NO_DRY_RUN: Final = "does not support dry run"
"""Words of an API server with an admission webhook that has side effects: nothing is known of the executors then."""


async def refused_executor(
    context: ReconcileContext,
    job: JobIdentity,
    *,
    spec: StatefulSparkJobSpec | None,
    pod: DriverPod | None,
    driver: Driver | None,
    running: int,
    now: datetime,
) -> Failure | None:
    """The refusal of another executor's pod by the API server; None if none is missing, or the API server takes one.

    Args:
        context: Clients; keeps the result for half a minute.
        job: Identity of the job.
        spec: Spec that the driver was created from.
        pod: The driver's pod.
        driver: The driver, if it responds.
        running: Number of running executors.
        now: The current time.
    """
    known = context.executor_checks.get(job.uid)
    missing = driver is None or not driver.runs
    if (
        spec is None
        or pod is None
        or not missing
        or pod.phase != "Running"
        or pod.deleting
        or running >= spec.executor.instances_for(spec.parallelism)
    ):
        context.executor_checks.pop(job.uid, None)
        return None
    if pod.created_at is None or now - pod.created_at < _START:
        return None
    if known is not None and now - known[0] < _EVERY:
        return known[1]
    failure = await _ask(context, job, spec)
    if len(context.executor_checks) >= _CHECKS_MAX:
        context.executor_checks.clear()
    context.executor_checks[job.uid] = (now, failure)
    return failure


async def _ask(context: ReconcileContext, job: JobIdentity, spec: StatefulSparkJobSpec) -> Failure | None:
    try:
        await context.cluster.create(executor_sample(job, spec, image=context.image(spec) or ""), dry_run=True)
    except InvalidInputError as error:
        return None if _NO_DRY_RUN in str(error) else Failure(reason=REFUSED, message=f"The API server refuses an executor's pod: {error}")
    except StatefulSparkError:
        return None
    return None
