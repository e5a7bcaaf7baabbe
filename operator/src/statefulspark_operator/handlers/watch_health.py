"""Health of the watches: which namespaces cannot be watched, and which watches make no progress.

kopf retries a rejected watch indefinitely without reporting it, so `handlers.watch_thread` reports each of its requests here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog

_log = structlog.get_logger("statefulspark.operator.watch_health")
_STALLED_S: Final = 420.0
"""A working watch is reopened every 300 s, a failing one is retried every few seconds."""

NamespaceScope = str | None
"""A namespace; None for the whole cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchResponse:
    """Response to a request of a watch, or its failure."""

    namespace: NamespaceScope
    plural: str
    listing: bool
    """True for a list request, which a watch makes when it starts and after missed events; False for a streaming request."""
    code: int
    """HTTP status code; 0 if there was no response."""


@dataclass(slots=True)
class _Stream:
    asked_s: float
    refused: int | None = None
    lists: int = 0


class WatchHealth:
    """Tracks the last response to each watch.

    Args:
        changed: Called with a namespace and False when it can no longer be watched, True when all of its watches work again.
        relisted: Called when a watch lists again. Events in between, including deletions, are never delivered.
    """

    def __init__(self, *, changed: Callable[[NamespaceScope, bool], None], relisted: Callable[[NamespaceScope, str], None]) -> None:
        self._changed = changed
        self._relisted = relisted
        self._watches: dict[tuple[NamespaceScope, str], _Stream] = {}
        self._lost: dict[NamespaceScope, float] = {}

    def record(self, answer: WatchResponse) -> None:
        """Records the response to a request."""
        now = time.monotonic()
        stream = self._watches.setdefault((answer.namespace, answer.plural), _Stream(now))
        stream.asked_s = now
        if answer.code in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            stream.refused = answer.code
        elif HTTPStatus.OK <= answer.code < HTTPStatus.MULTIPLE_CHOICES:
            stream.refused = None
            if answer.listing:
                stream.lists += 1
                if stream.lists > 1:
                    self._relisted(answer.namespace, answer.plural)
        self._settle(answer.namespace, now)

    def lost(self, namespace: str) -> bool:
        """True if the API server refuses to let the operator watch ``namespace``."""
        return namespace in self._lost

    def notes(self) -> list[str]:
        """One line for each namespace that cannot be watched."""
        now = time.monotonic()
        return [
            f"{_named(namespace)} has not been watched for {now - since_s:.0f} s: {self._why(namespace)}"
            for namespace, since_s in self._lost.items()
        ]

    def problem(self) -> str | None:
        """Reason why a watch makes no progress; None if every watch makes progress or is being retried."""
        now = time.monotonic()
        for (namespace, plural), stream in self._watches.items():
            if now - stream.asked_s > _STALLED_S:
                return f"the watch of {plural} in {_named(namespace)} has made no request for {now - stream.asked_s:.0f} s"
        return None

    def started(self) -> None:
        """Resets the timers when all watches are restarted; watches of the previous run make no more requests."""
        now = time.monotonic()
        for stream in self._watches.values():
            stream.asked_s = now

    def _settle(self, namespace: NamespaceScope, now: float) -> None:
        refused = any(stream.refused for (where, _), stream in self._watches.items() if where == namespace)
        if refused and namespace not in self._lost:
            self._lost[namespace] = now
            _log.warning("cannot watch namespace; other namespaces are not affected", namespace=_named(namespace), why=self._why(namespace))
            self._changed(namespace, False)
        elif not refused and namespace in self._lost:
            del self._lost[namespace]
            _log.info("namespace is watched again", namespace=_named(namespace))
            self._changed(namespace, True)

    def _why(self, namespace: NamespaceScope) -> str:
        plurals = sorted(plural for (where, plural), stream in self._watches.items() if where == namespace and stream.refused)
        codes = sorted({stream.refused for (where, _), stream in self._watches.items() if where == namespace and stream.refused})
        return (
            f"{', '.join(plurals)}: {' and '.join(str(code) for code in codes)}. Create the namespace and the operator's RoleBinding in it"
        )


def _named(namespace: NamespaceScope) -> str:
    return f"namespace {namespace}" if namespace is not None else "the cluster"
