"""Sends a class or function of the job's own to the slots, which need not be able to import it."""

from __future__ import annotations

import cloudpickle

from statefulspark.config.job import StatefulSparkJob
from statefulspark.errors import InvalidInputError
from statefulspark.pipeline.script import register_by_value


def pickled(manifest: StatefulSparkJob, name: str, thing: object, *, field: str) -> bytes:
    """Return it as cloudpickle writes it.

    Args:
        manifest: The job's.
        name: ``module:name``, for the error.
        thing: The class or function, already imported.
        field: Manifest field that names it.

    Raises:
        InvalidInputError: It holds something that cannot be pickled.
    """
    # Its module may have brought others of the job's with it.
    register_by_value(manifest)
    try:
        data: bytes = cloudpickle.dumps(thing)
    except Exception as error:
        raise InvalidInputError(
            f"{name} cannot be sent to the slots: {error}", field=field, remedy="Remove open connections, files and locks from it"
        ) from error
    return data
