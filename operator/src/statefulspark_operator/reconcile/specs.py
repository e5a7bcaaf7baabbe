"""Parses specs, and converts them to the text that the status stores. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.kubernetes.manifest import validate_on_kubernetes, validate_snapshot
from statefulspark.config.snapshot import StateSnapshotSpec
from statefulspark.errors import InvalidInputError
from statefulspark_operator.reconcile.state_backends import with_state_backend


def spec_text(spec: StatefulSparkJobSpec) -> str:
    """The spec as compact JSON, with sorted names, so that equal specs have equal texts."""
    return json.dumps(
        spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True), sort_keys=True, separators=(",", ":")
    )


@lru_cache(maxsize=2048)
def checked_spec(text: str | None) -> StatefulSparkJobSpec | None:
    """Parses a stored spec; None if there is none, or this version of the operator cannot parse it."""
    if not text:
        return None
    try:
        spec = StatefulSparkJobSpec.model_validate_json(text)
    except ValidationError:
        return None
    # A spec that was stored without a type meant the model's default, which is written down so that leaving it out is no change.
    backend = spec.state_backend.model_copy(update={"type": spec.state_backend.type})
    return spec.model_copy(update={"state_backend": backend})


class CheckedSpecs:
    """Cache of validated specs by generation and resolved state backend: validating one costs more than the rest of a reconciliation."""

    def __init__(self, *, kept: int = 4096) -> None:
        self._kept = kept
        self._known: dict[str, tuple[tuple[int, str], StatefulSparkJobSpec | None, str | None]] = {}

    def check(self, job: Mapping[str, Any], default_backend: str) -> tuple[StatefulSparkJobSpec | None, str | None]:
        """The spec of a job with its state backend resolved, or why it is invalid."""
        resolved = with_state_backend(job, default_backend)
        uid, version = job["metadata"]["uid"], (job["metadata"].get("generation", 0), _backend(resolved))
        known = self._known.get(uid)
        if known is None or known[0] != version:
            try:
                known = (version, validate_on_kubernetes(resolved).spec, None)
            except InvalidInputError as error:
                known = (version, None, str(error))
            if len(self._known) >= self._kept:
                self._known.clear()
            self._known[uid] = known
        return known[1], known[2]


def _backend(job: Mapping[str, Any]) -> str:
    spec = job.get("spec")
    backend = spec.get("stateBackend") if isinstance(spec, Mapping) else None
    return str(backend.get("type")) if isinstance(backend, Mapping) else ""


def checked_snapshot_spec(tree: Mapping[str, Any]) -> tuple[StateSnapshotSpec | None, str | None]:
    """The spec of a StateSnapshot, or why it is invalid."""
    try:
        return validate_snapshot(tree).spec, None
    except InvalidInputError as error:
        return None, str(error)
