"""RetryingStore: retries transient storage failures for a bounded time instead of failing a batch.

Every operation of an ObjectStore is safe to repeat: puts write the same bytes, ``put_if_absent`` succeeds if its own bytes are
already stored, and deletes accept missing keys.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import structlog
import tenacity

from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.storage.base import ObjectInfo, ObjectStore
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.hashes import HashAlgorithm

_log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to retry and when to stop.

    Raises:
        InvalidInputError: A value is out of bounds.
    """

    budget_s: float = 60.0
    """No attempt starts later than this after the first one, seconds, >= 0. One attempt more may still be running then."""

    wait_s_first: float = 0.1
    """Wait before the second attempt, seconds, > 0; doubles with each attempt; up to as much again is added at random."""

    wait_s_max: float = 10.0
    """The doubling ends here, seconds, >= ``wait_s_first``."""

    def __post_init__(self) -> None:
        """Check the bounds."""
        if self.budget_s < 0 or self.wait_s_first <= 0 or self.wait_s_max < self.wait_s_first:
            raise InvalidInputError(f"{self} is out of bounds", field="RetryPolicy", remedy="See the bounds of its fields")


@dataclass(frozen=True, slots=True)
class RetryingStore:
    """Repeats what ``inner`` answers with UnavailableError; all else passes at once.

    ``sleep`` and ``clock`` (seconds, monotonic) are given by tests; both must be picklable where the store is pickled.
    """

    inner: ObjectStore
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    @property
    def url(self) -> str:
        """Of the inner store."""
        return self.inner.url

    def within(self, budget_s: float) -> RetryingStore:
        """Return the same store with another time budget, seconds."""
        return replace(self, policy=replace(self.policy, budget_s=budget_s))

    def put(self, key: str, data: bytes) -> None:
        """Write or replace."""
        self._call("put", key, lambda: self.inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Create; ConflictError when the key exists with other bytes."""
        self._call("put_if_absent", key, lambda: self.inner.put_if_absent(key, data))

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        """Upload a local file, which must not change meanwhile. A canceled upload is not repeated, and no wait is left to its end."""
        sleep = cancellation.sleep if cancellation is not None else None
        self._call("put_file", key, lambda: self.inner.put_file(key, path, cancellation), sleep)

    def get(self, key: str) -> bytes:
        """Read whole; KeyError when absent."""
        return self._call("get", key, lambda: self.inner.get(key))

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> str | None:
        """Download to ``path``; KeyError when absent."""
        return self._call("get_file", key, lambda: self.inner.get_file(key, path, algorithm))

    def head(self, key: str) -> ObjectInfo | None:
        """Info or None."""
        return self._call("head", key, lambda: self.inner.head(key))

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """All objects whose key starts with ``prefix``, sorted by key."""
        return self._call("list", prefix, lambda: self.inner.list(prefix))

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Names directly below ``prefix`` that have objects under them, sorted."""
        return self._call("list_folders", prefix, lambda: self.inner.list_folders(prefix))

    def copy(self, source: str, target: str) -> None:
        """Server-side copy; KeyError when ``source`` is absent."""
        self._call("copy", target, lambda: self.inner.copy(source, target))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; absent keys are fine."""
        every = builtins.list(keys)  # an iterator would be used up by the first attempt
        self._call("delete", every[0] if every else "", lambda: self.inner.delete(every))

    def _call(self, operation: str, key: str, attempt: Callable[[], T], sleep: Callable[[float], None] | None = None) -> T:
        start_s = self.clock()
        first_s = self.policy.wait_s_first

        def give_up(state: tenacity.RetryCallState) -> bool:
            wait_s = state.upcoming_sleep
            return self.clock() - start_s + wait_s > self.policy.budget_s

        def before_sleep(state: tenacity.RetryCallState) -> None:
            failure = state.outcome.exception() if state.outcome else None
            _log.warning(
                "storage request failed, retrying",
                operation=operation,
                key=key,
                attempt=state.attempt_number,
                wait_s=round(state.upcoming_sleep, 3),
                error=str(failure),
            )

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(UnavailableError),
            wait=tenacity.wait_exponential(multiplier=first_s, max=self.policy.wait_s_max) + tenacity.wait_random(0, first_s),
            stop=give_up,
            sleep=sleep or self.sleep,
            before_sleep=before_sleep,
        )
        try:
            return retrying(attempt)
        except tenacity.RetryError as exc:
            failure = exc.last_attempt.exception()
            spent_s = self.clock() - start_s
            attempts = exc.last_attempt.attempt_number
            message = f"{failure}; gave up {operation} after {attempts} attempts in {spent_s:.0f} s"
            raise UnavailableError(message, retry_after_s=self.policy.wait_s_max) from failure
