"""The manifest of a job in a notebook: defaults for all that a manifest's author would write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.manifest import validate_job
from statefulspark.errors import InvalidInputError

_BACKENDS: Final = ("filesystem", "memory", "rocksdb")
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,43}[a-z0-9])?")


def local_manifest(name: str, parallelism: int, backend: str, folder: Path) -> StatefulSparkJob:
    """Return the manifest of a job whose state is stored below ``folder``.

    Raises:
        InvalidInputError: The name or the backend is none.
    """
    if _NAME.fullmatch(str(name)) is None:
        raise InvalidInputError(
            f"{str(name)[:60]!r} is not a job's name",
            field="name",
            remedy="Use at most 45 lower-case letters, digits and dashes, and begin with a letter",
        )
    if backend not in _BACKENDS:
        raise InvalidInputError(f"{str(backend)[:60]!r} is not known", field="backend", remedy=f"Choose one of {', '.join(_BACKENDS)}")
    return validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": name},
            "spec": {
                "job": {"module": "__main__"},
                "parallelism": parallelism,
                "stateBackend": {"type": backend},
                "checkpointing": {"dir": (folder / "state").as_uri()},
                # Not for errors of functions: `RunSettings.restart_user_errors`. Short pauses, because a stop waits for one.
                "restartStrategy": {
                    "exponentialDelay": {"maxBackoff": "5s", "resetBackoffThreshold": "10min", "attemptsBeforeResetBackoff": 10}
                },
            },
        }
    )
