"""The canary: a suspended job that the leader touches now and then, to see that changes still arrive. It runs nothing.

A watch that has gone deaf looks like a quiet cluster; only a change that one has made oneself, and does not see, tells the difference.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog

from statefulspark.errors import StatefulSparkError
from statefulspark_operator.api.names import API_VERSION, GROUP, JOB_KIND, LABEL_CANARY
from statefulspark_operator.clients.kubernetes import Cluster, Tree

_log = structlog.get_logger("statefulspark.operator.canary")
NAME: Final = "statefulspark-canary"
_TOUCHED: Final = f"{GROUP}/touched"


class Canary:
    """Touches one object and waits to see it.

    Args:
        cluster: Where.
        namespace: The operator's own.
        identity: This replica's name: every replica has its own touch.
        timeout_s: How late a touch may be seen.
    """

    def __init__(self, cluster: Cluster, *, namespace: str, identity: str, timeout_s: float) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._mark = f"{_TOUCHED}-{identity}"[-63:].lstrip("-./") if len(identity) > 40 else f"{_TOUCHED}-{identity}"
        self._timeout_s = timeout_s
        self._awaited: tuple[str, float] | None = None

    def saw(self, tree: Tree) -> None:
        """An event of some job has arrived."""
        if self._awaited is not None and (tree["metadata"].get("annotations") or {}).get(self._mark) == self._awaited[0]:
            self._awaited = None

    def problem(self) -> str | None:
        """Why the operator is deaf; None when it is not."""
        if self._awaited is not None and (late_s := time.monotonic() - self._awaited[1]) > self._timeout_s:
            return f"a change of {self._namespace}/{NAME} was not seen for {late_s:.0f} s"
        return None

    async def run(self) -> None:
        """Touch until cancelled."""
        while True:
            try:
                await self._touch()
            except StatefulSparkError as error:
                # The API server does not answer: restarting the operator would not help.
                _log.warning("the canary cannot be touched", error=str(error)[:300])
            await asyncio.sleep(self._timeout_s / 2)

    async def _touch(self) -> None:
        if self._awaited is not None:
            return
        mark = f"{time.time_ns()}"
        touch = {"metadata": {"annotations": {self._mark: mark}}}
        self._awaited = (mark, time.monotonic())
        try:
            if await self._cluster.merge(API_VERSION, JOB_KIND, self._namespace, NAME, touch) is None:
                await self._cluster.create(self._object())
                self._awaited = None
        except StatefulSparkError:
            self._awaited = None
            raise

    def _object(self) -> Tree:
        return {
            "apiVersion": API_VERSION,
            "kind": JOB_KIND,
            "metadata": {"name": NAME, "namespace": self._namespace, "labels": {LABEL_CANARY: "true"}},
            "spec": {
                "state": "suspended",
                "job": {"module": "statefulspark"},
                "checkpointing": {"dir": "file:///nowhere"},
            },
        }
