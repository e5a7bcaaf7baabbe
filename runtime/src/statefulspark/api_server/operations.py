"""Operations: long requests (a savepoint, a rescale), each run in its own thread and remembered after it ends.

A client may wait for an operation or poll it by id; it continues if the client disconnects. With
an idempotency key, a client whose response was lost gets the first operation again instead of a second savepoint.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from statefulspark.api_server.problems import problem_of
from statefulspark.coordinator.controls import CheckpointInfo, JobError, JobStatus
from statefulspark.errors import ConflictError, StatefulSparkError, UnavailableError

_log = logging.getLogger(__name__)

OperationKind = Literal["checkpoint", "savepoint", "stop", "cancel", "rescale"]
Result = CheckpointInfo | JobStatus | None
Work = Callable[[], Result]


class OperationState(StrEnum):
    """State of an operation."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass(slots=True)
class Operation:
    """One request being carried out. Written by its own thread only; ``done`` is resolved last."""

    id: str
    kind: OperationKind
    request: str
    """Canonical text of what was asked, to tell a repetition from another request under the same key."""
    started_ms: int
    key: str | None = None
    """The idempotency key it was asked for with."""
    state: OperationState = OperationState.RUNNING
    finished_ms: int | None = None
    result: Result = None
    error: JobError | None = None
    done: Future[Result] = field(default_factory=Future, repr=False)


class Operations:
    """Starts operations and remembers the last ones.

    Args:
        clock_ms: Milliseconds since the epoch.
        running_max: More at once are refused with UnavailableError; bounds the threads.
        finished_max: Ended operations kept; the oldest are forgotten.
    """

    def __init__(self, clock_ms: Callable[[], int], *, running_max: int = 8, finished_max: int = 256) -> None:
        self._clock_ms = clock_ms
        self._running_max = running_max
        self._finished_max = finished_max
        self._lock = threading.Lock()
        self._by_id: OrderedDict[str, Operation] = OrderedDict()
        self._by_key: dict[str, Operation] = {}

    def submit(self, kind: OperationKind, request: str, work: Work, *, key: str | None = None) -> Operation:
        """Start ``work``, or return the operation that was started under the same ``key``.

        Raises:
            ConflictError: ``key`` was used for another request.
            UnavailableError: Too many operations are running.
        """
        with self._lock:
            if key is not None and (known := self._by_key.get(key)):
                if (known.kind, known.request) != (kind, request):
                    raise ConflictError(f"Idempotency-Key was already used for a different request ({known.kind}, operation {known.id})")
                return known
            if sum(operation.state is OperationState.RUNNING for operation in self._by_id.values()) >= self._running_max:
                raise UnavailableError(f"{self._running_max} operations are already running. Retry when one has ended", retry_after_s=5.0)
            operation = Operation(secrets.token_hex(8), kind, request, self._clock_ms(), key)
            # Marked as running, a future can no longer be cancelled by a waiter that times out.
            operation.done.set_running_or_notify_cancel()
            self._by_id[operation.id] = operation
            if key is not None:
                self._by_key[key] = operation
            self._forget_oldest()
        threading.Thread(target=self._run, args=(operation, work), name=f"api-{kind}-{operation.id}", daemon=True).start()
        return operation

    def get(self, operation_id: str) -> Operation | None:
        """Find by id; None when unknown or forgotten."""
        with self._lock:
            return self._by_id.get(operation_id)

    def all(self) -> list[Operation]:
        """All that are remembered, oldest first."""
        with self._lock:
            return list(self._by_id.values())

    def _run(self, operation: Operation, work: Work) -> None:
        try:
            result = work()
        except Exception as exc:  # noqa: BLE001 - a thread's last stop: whatever it is goes to the client and, if it is a defect, to the log
            if not isinstance(exc, StatefulSparkError):
                _log.exception("operation %s (%s) failed", operation.id, operation.kind)
            operation.error = problem_of(exc).error
            operation.state = OperationState.FAILED
            operation.finished_ms = self._clock_ms()
            operation.done.set_exception(exc)
        else:
            operation.result = result
            operation.state = OperationState.SUCCEEDED
            operation.finished_ms = self._clock_ms()
            operation.done.set_result(result)

    def _forget_oldest(self) -> None:
        ended = [operation for operation in self._by_id.values() if operation.state is not OperationState.RUNNING]
        for operation in ended[: max(0, len(ended) - self._finished_max)]:
            del self._by_id[operation.id]
        self._by_key = {key: operation for key, operation in self._by_key.items() if operation.id in self._by_id}
