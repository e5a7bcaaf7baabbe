"""The termination message: how a driver's container tells Kubernetes, and thereby the operator, how the job ended.

It is one JSON object (docs/formats.md, "Termination message") in the file that Kubernetes reads when the container ends. A container that wrote
one is **settled**: a restart would end the same way, so it exits with 0 and ``restartPolicy: OnFailure`` does not restart it. The kubelet
restarts a container that ends in any other way, with or without an operator, and it resumes from the latest state in storage.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from statefulspark.coordinator.controls import JobError, JobState, JobStatus
from statefulspark.errors import InvalidInputError, StatefulSparkError

VERSION: Final = 1
_BYTES_MAX: Final = 4096
"""Kubernetes keeps no more."""
_RANGES_MAX: Final = 800
_ERROR_MIN: Final = 1500
"""Minimum space for the error, in bytes."""


def settled(error: StatefulSparkError) -> bool:
    """True if a job that could not be started would fail the same way again."""
    return isinstance(error, InvalidInputError)


def of_status(status: JobStatus, kept: Iterable[int] | None = None) -> bytes:
    """The message of a job that ended in a final state.

    Args:
        status: Its final status.
        kept: Numbers of the checkpoints that its folder holds, if they are known.
    """
    snapshot = status.last_savepoint or status.last_checkpoint
    if status.last_savepoint is not None and status.last_checkpoint is not None:
        snapshot = max(status.last_savepoint, status.last_checkpoint, key=lambda info: info.completed_ms)
    known: dict[str, object] = {}
    if snapshot is not None:
        known["snapshot"] = dataclasses.asdict(snapshot)
    if kept is not None and len(text := _ranges(kept)) <= _RANGES_MAX:
        known["checkpoints"] = text
    return _encoded(status.state, status.batch, snapshot.path if snapshot is not None else None, status.error, known)


def of_error(error: StatefulSparkError) -> bytes:
    """The message of a job that could not be started."""
    return _encoded(JobState.FAILED, -1, None, JobError.of(error), {})


def write(path: Path, message: bytes) -> None:
    """Write the message, whole."""
    path.write_bytes(message)


def _without_source(text: str) -> str:
    """Leaves the lines of source out of tracebacks: a literal in them may be a secret, and the message is part of the pod's status."""
    kept: list[str] = []
    frame: int | None = None
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" |"))
        if line[indent:].startswith('File "'):
            frame = indent
        elif frame is not None and indent > frame:
            continue
        else:
            frame = None
        kept.append(line)
    return "\n".join(kept)


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as ``3-7,9``."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _encoded(state: JobState, batch: int, snapshot: str | None, error: JobError | None, known: Mapping[str, object]) -> bytes:
    message = {"version": VERSION, "state": state.value, "batch": batch, "path": snapshot, "error": None, **known}
    if known and len(json.dumps(message)) > _BYTES_MAX - _ERROR_MIN:
        # A path may have thousands of bytes. The operator learns the omitted facts later, from storage.
        return _encoded(state, batch, snapshot, error, {})
    if error is None:
        return json.dumps(message).encode()
    # The end of a user's traceback says most.
    bytes_max = _BYTES_MAX - len(json.dumps(message | {"error": {"reason": error.reason, "message": ""}}))
    text = _without_source(error.message)
    while len(json.dumps(text)) - 2 > bytes_max:
        text = "..." + text[len(text) // 8 + 4 :]
    return json.dumps(message | {"error": {"reason": error.reason, "message": text}}).encode()
