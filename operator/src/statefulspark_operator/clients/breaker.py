"""A circuit breaker per endpoint: after repeated slow failures no requests are sent for a while. Fast failures do not count."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from statefulspark.errors import UnavailableError

_SLOW_S: Final = 1.0
"""Faster failures cost nothing: a starting driver refuses connections immediately."""
_FREE_FAILURES: Final = 1
_PAUSE_S: Final = 5.0
_PAUSE_S_MAX: Final = 30.0
_KEPT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Trouble:
    failures: int
    closed_until: float


class Breaker:
    """Remembers slow failures by endpoint.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._troubles: dict[str, _Trouble] = {}

    @contextmanager
    def guarded(self, endpoint: str) -> Iterator[None]:
        """Run one request to ``endpoint``.

        A cancelled request counts as failed: its caller has timed out.

        Raises:
            UnavailableError: The breaker is open after slow failures; no request was sent.
        """
        trouble = self._troubles.get(endpoint)
        began = self._clock()
        if trouble is not None and began < trouble.closed_until:
            raise UnavailableError(f"{endpoint} timed out repeatedly; no request is sent for {trouble.closed_until - began:.0f} s")
        try:
            yield
        except BaseException:
            self._failed(endpoint, trouble, began)
            raise
        self._troubles.pop(endpoint, None)

    def _failed(self, endpoint: str, trouble: _Trouble | None, began: float) -> None:
        now = self._clock()
        if now - began < _SLOW_S:
            return
        failures = trouble.failures + 1 if trouble is not None else 1
        pause_s = min(_PAUSE_S_MAX, _PAUSE_S * float(1 << min(failures - 1 - _FREE_FAILURES, 5))) if failures > _FREE_FAILURES else 0.0
        if len(self._troubles) >= _KEPT_MAX:
            self._troubles.clear()  # addresses of pods that are gone
        self._troubles[endpoint] = _Trouble(failures, now + pause_s)
