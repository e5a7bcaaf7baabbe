"""Records Kubernetes events on jobs and snapshots. Repeated events are dropped, and events are rate-limited per object."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

import structlog

from statefulspark.errors import StatefulSparkError
from statefulspark_operator.api.names import FIELD_MANAGER
from statefulspark_operator.clients.kubernetes import Cluster, Tree

_log = structlog.get_logger("statefulspark.operator.events")
_MESSAGE_MAX: Final = 1024
"""Kubernetes' limit for the message of an event."""
_QUIET_S: Final = 300.0
"""An identical event of the same object is recorded at most once in this time."""
_BURST: Final = 30
_REFILL_S: Final = 10.0
"""Token bucket per object: this many events at once, and one more every ``_REFILL_S``."""
_REMEMBERED_MAX: Final = 10_000


class EventRecorder:
    """Records events. A failure to record one is logged and never raised."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._told: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._budgets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def record(self, about: Tree, reason: str, message: str, *, warning: bool = False) -> None:
        """Records an event for an object."""
        metadata = about["metadata"]
        now = time.monotonic()
        _log.info(reason, kind=about["kind"], namespace=metadata["namespace"], name=metadata["name"], message=message)
        if self._repeated((metadata["uid"], reason, message), now) or not self._affordable(metadata["uid"], now):
            return
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            await self._cluster.create(
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"generateName": f"{metadata['name']}-", "namespace": metadata["namespace"]},
                    "involvedObject": {
                        "apiVersion": about["apiVersion"],
                        "kind": about["kind"],
                        "name": metadata["name"],
                        "namespace": metadata["namespace"],
                        "uid": metadata["uid"],
                    },
                    "reason": reason,
                    "message": message if len(message) <= _MESSAGE_MAX else f"{message[: _MESSAGE_MAX - 3]}...",
                    "type": "Warning" if warning else "Normal",
                    "source": {"component": FIELD_MANAGER},
                    "firstTimestamp": moment,
                    "lastTimestamp": moment,
                    "count": 1,
                }
            )
        except StatefulSparkError as error:
            _log.warning("failed to record event", reason=reason, error=str(error)[:200])

    def _repeated(self, event: tuple[str, str, str], now: float) -> bool:
        told = self._told.pop(event, None)
        self._told[event] = now if told is None or now - told > _QUIET_S else told
        if len(self._told) > _REMEMBERED_MAX:
            self._told.popitem(last=False)
        return told is not None and now - told <= _QUIET_S

    def _affordable(self, uid: str, now: float) -> bool:
        left, since = self._budgets.pop(uid, (float(_BURST), now))
        left = min(float(_BURST), left + (now - since) / _REFILL_S)
        self._budgets[uid] = (max(0.0, left - 1), now)
        if len(self._budgets) > _REMEMBERED_MAX:
            self._budgets.popitem(last=False)
        return left >= 1
