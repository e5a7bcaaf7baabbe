"""Specs as text and back: how the operator remembers in the status what it acted on. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.problems import as_invalid_input
from statefulspark.config.snapshot import StateSnapshot, StateSnapshotSpec


def spec_text(spec: StatefulSparkJobSpec) -> str:
    """The spec as compact JSON, with sorted names, so that equal specs have equal texts."""
    return json.dumps(spec.to_manifest(), sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=2048)
def checked_spec(text: str | None) -> StatefulSparkJobSpec | None:
    """The spec of a text; None when there is none, or when this version of the operator cannot read it."""
    if not text:
        return None
    try:
        return StatefulSparkJobSpec.model_validate_json(text)
    except ValidationError:
        return None


def checked_snapshot_spec(tree: Mapping[str, Any]) -> tuple[StateSnapshotSpec | None, str | None]:
    """The spec of a StateSnapshot object, or why it is not valid."""
    try:
        return StateSnapshot.model_validate(tree, by_alias=True, by_name=False).spec, None
    except ValidationError as error:
        return None, str(as_invalid_input(error, StateSnapshot))
