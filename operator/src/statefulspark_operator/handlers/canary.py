"""The canary: a suspended job that the operator updates regularly to check that watches deliver events. It runs nothing.

A watch that silently stopped looks like a quiet cluster; only an update of one's own that is not delivered tells the difference.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import structlog

from statefulspark.errors import StatefulSparkError
from statefulspark_operator.api.names import API_VERSION, GROUP, JOB_KIND, LABEL_CANARY
from statefulspark_operator.clients.kubernetes import Cluster, Tree

_log = structlog.get_logger("statefulspark.operator.canary")
NAME: Final = "statefulspark-canary"
_TOUCHED: Final = f"{GROUP}/touched"


class Canary:
    """Updates one object and waits for the watch to deliver the update.

    Args:
        cluster: Where.
        namespace: The operator's own.
        identity: This replica's name; every replica has an annotation of its own.
        timeout_s: Deadline for the delivery of an update, in seconds.
        owners: References to the owner of the object.
    """

    def __init__(self, cluster: Cluster, *, namespace: str, identity: str, timeout_s: float, owners: Sequence[Tree] = ()) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._mark = f"{_TOUCHED}-{identity}"[-63:].lstrip("-./") if len(identity) > 40 else f"{_TOUCHED}-{identity}"
        self._timeout_s = timeout_s
        self._owners = list(owners)
        self._awaited: tuple[str, float] | None = None

    def on_event(self, tree: Tree) -> None:
        """Handles an event for any job."""
        if self._awaited is not None and (tree["metadata"].get("annotations") or {}).get(self._mark) == self._awaited[0]:
            self._awaited = None

    def problem(self) -> str | None:
        """Reason why watches count as broken; None if updates are delivered."""
        if self._awaited is not None and (late_s := time.monotonic() - self._awaited[1]) > self._timeout_s:
            return f"the watch has not delivered an update of {self._namespace}/{NAME} for {late_s:.0f} s"
        return None

    async def run(self) -> None:
        """Updates the canary until cancelled."""
        while True:
            try:
                await self._touch()
            except StatefulSparkError as error:
                # The API server does not respond; restarting the operator would not help.
                _log.warning("failed to update the canary", error=str(error)[:300])
            await asyncio.sleep(self._timeout_s / 2)

    async def remove(self) -> None:
        """Deletes the canary of an operator with other settings. An object without the canary's label is a user's job and is kept."""
        try:
            found = await self._cluster.get(API_VERSION, JOB_KIND, self._namespace, NAME)
            if found is not None and (found["metadata"].get("labels") or {}).get(LABEL_CANARY) == "true":
                await self._cluster.delete(API_VERSION, JOB_KIND, self._namespace, NAME, uid=found["metadata"]["uid"])
        except StatefulSparkError as error:
            _log.warning("failed to delete the canary of an earlier configuration", error=str(error)[:300])

    async def _touch(self) -> None:
        if self._awaited is not None:
            return
        mark = f"{time.time_ns()}"
        touch = {"metadata": {"annotations": {self._mark: mark}, "ownerReferences": self._owners}}
        self._awaited = (mark, time.monotonic())
        try:
            if await self._cluster.patch(API_VERSION, JOB_KIND, self._namespace, NAME, touch) is None:
                await self._cluster.create(self._object())
                self._awaited = None
        except StatefulSparkError:
            self._awaited = None
            raise

    def _object(self) -> Tree:
        return {
            "apiVersion": API_VERSION,
            "kind": JOB_KIND,
            "metadata": {"name": NAME, "namespace": self._namespace, "labels": {LABEL_CANARY: "true"}, "ownerReferences": self._owners},
            "spec": {
                "state": "suspended",
                "job": {"module": "statefulspark"},
                "checkpointing": {"dir": "file:///nowhere"},
            },
        }
