"""Error responses: ``{"error": {"reason", "message"}}``, with a status code that tells the client what to do next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from statefulspark.coordinator.controls import JobError
from statefulspark.errors import (
    ClosedError,
    ConflictError,
    FencedError,
    InvalidInputError,
    NotRestorableError,
    StatefulSparkError,
    UnavailableError,
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A refused or failed request."""

    status: int
    error: JobError
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, dict[str, str]]:
        """The JSON document."""
        return {"error": {"reason": self.error.reason, "message": self.error.message}}


def problem_of(error: BaseException) -> Problem:
    """Convert an exception to the error that the client receives.

    The text of an error outside the tree stays in the log (it may name anything); clients get a sentence without it.
    """
    if isinstance(error, InvalidInputError):
        return Problem(400, JobError.of(error))
    if isinstance(error, (ConflictError, ClosedError)):
        return Problem(409, JobError.of(error))
    if isinstance(error, UnavailableError):
        return Problem(503, JobError.of(error), {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))})
    if isinstance(error, StatefulSparkError):
        return Problem(500, JobError.of(error))
    return Problem(500, JobError(reason="Internal", message="The driver failed on this request; its log has the traceback."))


_BY_REASON: Mapping[str, type[StatefulSparkError]] = {
    "InvalidInput": InvalidInputError,
    "NotRestorable": NotRestorableError,
    "Conflict": ConflictError,
    "Fenced": FencedError,
    "Closed": ClosedError,
}


def error_of(status: int, error: JobError, *, retry_after_s: float = 1.0) -> StatefulSparkError:
    """Turn an answer back into the error the caller handles: the inverse of ``problem_of`` as far as the wire carries it."""
    if status == 503:
        return UnavailableError(error.message, retry_after_s=retry_after_s)
    if kind := _BY_REASON.get(error.reason):
        return kind(error.message)
    if status < 500:
        return InvalidInputError(error.message)
    return StatefulSparkError(f"{error.reason}: {error.message}")
