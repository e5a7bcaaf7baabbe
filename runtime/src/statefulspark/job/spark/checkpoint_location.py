"""Chooses Spark's checkpoint location for a run: a new folder for each start of a driver, filled from durable storage."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final
from uuid import uuid4

import structlog

from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.query_plan import shared_folder

_log = structlog.get_logger("statefulspark.locations")
_PREFIX: Final = "statefulspark-location-"


def open_location(shared: str | None, job_id: str, attempt: int, root: Path | None = None) -> Path:
    """A new, still missing folder for Spark's checkpoint location.

    A folder of its own for each attempt: executors that a lost driver left behind may go on writing into theirs. Those of earlier
    attempts are removed, because this attempt is claimed and has read durable storage only.

    Args:
        shared: The manifest's ``checkpointing.sparkLocation``; None for a folder on the driver's disk.
        job_id: Name of the job's folder below ``shared``.
        attempt: The claimed attempt.
        root: Where a folder on the driver's disk goes; None for the system's folder for temporary files.

    Raises:
        InvalidInputError: the shared folder cannot be written.
    """
    if shared is None:
        return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root)) / "checkpoint"
    folder = shared_folder(shared) / job_id
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for earlier in folder.glob("attempt-*"):
            shutil.rmtree(earlier, ignore_errors=True)
        own = folder / f"attempt-{attempt:08d}-{uuid4().hex[:12]}"
        own.mkdir()
    except OSError as error:
        raise InvalidInputError(
            f"{folder} cannot be written: {error.strerror}",
            field="spec.checkpointing.sparkLocation",
            remedy="Mount the folder in the driver and all executors, writable for the user they run as",
        ) from error
    _log.info("Spark's checkpoint location is shared", folder=str(own))
    return own / "checkpoint"


def remove_location(location: Path) -> None:
    """Remove a location on the driver's disk: storage has what the next run needs. A shared one stays until then, for executors that still write."""
    if location.parent.name.startswith(_PREFIX):
        shutil.rmtree(location.parent, ignore_errors=True)
