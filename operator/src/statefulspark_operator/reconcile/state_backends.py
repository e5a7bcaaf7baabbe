"""The state backend of a job whose spec names none. Pure.

It is resolved once: by the operator's default when the job first starts, and by the spec that the status stores from then on. A new default
therefore never moves a job that has state, and everything after this, comparisons of specs included, sees a spec with a type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from pydantic import TypeAdapter

from statefulspark.config.default_backend import with_default_backend
from statefulspark.config.state_backend import BackendName, StateBackendType

_NAME: Final = TypeAdapter[str](BackendName)


def with_state_backend(job: Mapping[str, Any], default: str, *, kept: bool = True) -> Mapping[str, Any]:
    """Return the job with ``spec.stateBackend.type``, if it has none: that of the spec its status stores, else ``default``.

    Args:
        job: The object as the API server has it, with its status; it is not changed.
        default: The operator's setting.
        kept: False for an object that anyone may have sent: the text of its status is not cached, which could fill the memory.
    """
    resolved = with_default_backend(job, _of_status(job.get("status"), _of_kept_text if kept else _of_text) or default)
    return resolved if isinstance(resolved, Mapping) else job


def _of_status(status: object, backend_of: Callable[[str], str | None]) -> str | None:
    reconciliation = status.get("reconciliation") if isinstance(status, Mapping) else None
    text = reconciliation.get("lastReconciledSpec") if isinstance(reconciliation, Mapping) else None
    return backend_of(text) if isinstance(text, str) and text else None


def _of_text(text: str) -> str | None:
    """The type in a stored spec, which another version of the operator may have written. Without one, it meant rocksdb."""
    try:
        spec = json.loads(text)
        given = spec.get("stateBackend", {}).get("type", StateBackendType.ROCKSDB.value)
        return _NAME.validate_python(given)
    except (ValueError, AttributeError, RecursionError):
        return None


_of_kept_text: Final = lru_cache(maxsize=2048)(_of_text)
