"""The termination message: how a driver's container tells Kubernetes, and so the operator, how the job ended.

One JSON object (docs/formats.md, "Termination message") in the file that Kubernetes reads when the container ends. A container that wrote
one is **settled**: starting it again would end the same way, so it exits with 0 and ``restartPolicy: OnFailure`` leaves it alone. One that
ends in any other way is started again by the node, with or without an operator, and goes on from the newest state in storage.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from statefulspark.errors import InvalidInputError, StatefulSparkError
from statefulspark.job.controls import JobError, JobState, JobStatus

VERSION: Final = 1
_BYTES_MAX: Final = 4096
"""Kubernetes keeps no more."""


def settled(error: StatefulSparkError) -> bool:
    """Whether a job that could not be started would fail the same way again."""
    return isinstance(error, InvalidInputError)


def of_status(status: JobStatus) -> bytes:
    """The message of a job that ended in a final state."""
    snapshot = status.last_savepoint or status.last_checkpoint
    if status.last_savepoint is not None and status.last_checkpoint is not None:
        snapshot = max(status.last_savepoint, status.last_checkpoint, key=lambda info: info.completed_ms)
    return _encoded(status.state, status.batch, snapshot.path if snapshot is not None else None, status.error)


def of_error(error: StatefulSparkError) -> bytes:
    """The message of a job that could not be started."""
    return _encoded(JobState.FAILED, -1, None, JobError.of(error))


def write(path: Path, message: bytes) -> None:
    """Write the message, whole."""
    path.write_bytes(message)


def _encoded(state: JobState, batch: int, snapshot: str | None, error: JobError | None) -> bytes:
    message = {"version": VERSION, "state": state.value, "batch": batch, "path": snapshot, "error": None}
    if error is None:
        return json.dumps(message).encode()
    # The end of a user's traceback says most.
    room = _BYTES_MAX - len(json.dumps(message | {"error": {"reason": error.reason, "message": ""}}))
    text = error.message
    while len(json.dumps(text)) - 2 > room:
        text = "..." + text[len(text) // 8 + 4 :]
    return json.dumps(message | {"error": {"reason": error.reason, "message": text}}).encode()
