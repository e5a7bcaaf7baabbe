"""Loads the job's own state backend, and makes one before anything starts."""

from __future__ import annotations

from typing import Any

from statefulspark.config.job import StatefulSparkJob
from statefulspark.configuration import Configuration
from statefulspark.job.start.own_classes import pickled
from statefulspark.state.store.own_backend import BACKEND_FIELD, created_backend, imported_backend, is_own_backend


def own_backend_options(manifest: StatefulSparkJob) -> dict[str, Any]:
    """Return the keyword options of SlotConfig for a backend of one's own, none for the others. Called after the pipeline was loaded.

    Raises:
        InvalidInputError: The class cannot be imported, is no `StateBackend`, or cannot be made with the job's settings.
    """
    backend = manifest.spec.state_backend
    if not is_own_backend(backend.type):
        return {}
    found = imported_backend(backend.type)
    created_backend(found, Configuration(backend.options))
    return {"backend_class": pickled(manifest, backend.type, found, field=BACKEND_FIELD), "backend_options": dict(backend.options)}
