"""Namespaces that are being deleted. Read before objects are created or deleted, and cached briefly."""

from __future__ import annotations

import time
from typing import Final

from statefulspark.errors import InvalidInputError
from statefulspark_operator.clients.kubernetes import Cluster

_KEPT_S: Final = 2.0
_KEPT_MAX: Final = 4096


class Namespaces:
    """Reads namespaces from the API server."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: dict[str, tuple[float, bool]] = {}

    async def terminating(self, name: str) -> bool:
        """True if a namespace is being deleted or does not exist. Nothing can be created in it, and its deletion waits for finalizers.

        Raises:
            UnavailableError: The API server does not answer.
        """
        now = time.monotonic()
        kept = self._kept.get(name)
        if kept is not None and kept[0] > now:
            return kept[1]
        try:
            tree = await self._cluster.namespace(name)
        except InvalidInputError:
            return False  # not to be read with the rights of an older chart
        terminating = tree is None or tree["metadata"].get("deletionTimestamp") is not None
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[name] = (now + _KEPT_S, terminating)
        return terminating
