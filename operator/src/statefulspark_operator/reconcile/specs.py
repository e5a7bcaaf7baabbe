"""Parses specs, and converts them to the text that the status stores. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.kubernetes import validate_on_kubernetes, validate_snapshot
from statefulspark.config.snapshot import StateSnapshotSpec
from statefulspark.errors import InvalidInputError


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
        return StatefulSparkJobSpec.model_validate_json(text)
    except ValidationError:
        return None


class CheckedSpecs:
    """Cache of validated specs by generation: validating one costs more than the rest of a reconciliation."""

    def __init__(self, *, kept: int = 4096) -> None:
        self._kept = kept
        self._known: dict[str, tuple[int, StatefulSparkJobSpec | None, str | None]] = {}

    def check(self, job: Mapping[str, Any]) -> tuple[StatefulSparkJobSpec | None, str | None]:
        """The spec of a job, or why it is invalid."""
        uid, generation = job["metadata"]["uid"], job["metadata"].get("generation", 0)
        known = self._known.get(uid)
        if known is None or known[0] != generation:
            try:
                known = (generation, validate_on_kubernetes(job).spec, None)
            except InvalidInputError as error:
                known = (generation, None, str(error))
            if len(self._known) >= self._kept:
                self._known.clear()
            self._known[uid] = known
        return known[1], known[2]


def checked_snapshot_spec(tree: Mapping[str, Any]) -> tuple[StateSnapshotSpec | None, str | None]:
    """The spec of a StateSnapshot, or why it is invalid."""
    try:
        return validate_snapshot(tree).spec, None
    except InvalidInputError as error:
        return None, str(error)
