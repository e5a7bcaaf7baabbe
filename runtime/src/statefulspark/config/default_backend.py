"""The default state backend of an installation: what ``stateBackend.type`` is where a manifest leaves it out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from statefulspark.config.state_backend import BackendName, StateBackendType
from statefulspark.errors import InvalidInputError

DEFAULT_VARIABLE: Final = "STATEFULSPARK_DEFAULT_STATE_BACKEND"
"""Environment variable of local runs. The operator has a setting of its own and writes the type into each job's manifest."""
_NAME: Final = TypeAdapter[str](BackendName)


def default_state_backend(environ: Mapping[str, str]) -> str:
    """Return the default of this machine; rocksdb when the variable is unset or empty.

    Raises:
        InvalidInputError: The variable names no state backend.
    """
    given = environ.get(DEFAULT_VARIABLE, "").strip()
    if not given:
        return StateBackendType.ROCKSDB.value
    try:
        return _NAME.validate_python(given)
    except ValidationError as error:
        context = error.errors()[0].get("ctx", {})
        raise InvalidInputError(
            context.get("message", "is too long"), field=DEFAULT_VARIABLE, remedy=context.get("remedy", "Use at most 512 characters")
        ) from None


def with_default_backend(document: object, default: str) -> object:
    """Return a manifest with ``stateBackend.type`` written down if it has none. What is no manifest is returned as it is.

    Args:
        document: The mapping of a job, not yet checked; it is not changed.
        default: The type to write.
    """
    spec = document.get("spec") if isinstance(document, Mapping) else None
    backend = spec.get("stateBackend", {}) if isinstance(spec, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(spec, Mapping) or not isinstance(backend, Mapping) or "type" in backend:
        return document
    resolved: dict[str, Any] = {**document, "spec": {**spec, "stateBackend": {**backend, "type": str(default)}}}
    return resolved
