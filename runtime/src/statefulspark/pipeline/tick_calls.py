"""What the tick source asks the coordinator, in Spark's source process on the driver."""

from __future__ import annotations

import time

from statefulspark.errors import UnavailableError
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.exchange.rendezvous import present
from statefulspark.exchange.task import peer
from statefulspark.rpc.messages.batches import Planned, Tick, Wait

_POLL_S = 0.05
_FAILURES_MAX = 4
"""As often as Spark tries a task: so often storage may fail, each time after retries of its own, before the query does."""


def newest_tick(endpoint: Endpoint, uid: str, *, after: int) -> int:
    """Return the newest offset of a step's ticks: ``after`` if no timer is due.

    Raises:
        StatefulSparkError: The coordinator does not answer.
    """
    while isinstance(answer := peer(present(endpoint)).call(Tick(uid=uid, after=after), timeout_s=5), Wait):
        time.sleep(_POLL_S)
    return answer.offset


def await_planned(endpoint: Endpoint) -> None:
    """Have the coordinator make the planned batch durable.

    Raises:
        StatefulSparkError: The batch must not run.
    """
    failures = 0
    while True:
        try:
            if peer(present(endpoint)).call(Planned(), timeout_s=120) is None:
                return
            failures = 0
        except UnavailableError:
            failures += 1
            if failures == _FAILURES_MAX:
                raise
        time.sleep(_POLL_S)
