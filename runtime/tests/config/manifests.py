"""What the tests of manifests share."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from statefulspark.config.manifest import validate_job
from statefulspark.errors import InvalidInputError

MINIMAL: dict[str, Any] = {
    "apiVersion": "statefulspark.io/v1alpha1",
    "kind": "StatefulSparkJob",
    "metadata": {"name": "flights"},
    "spec": {"job": {"script": "flights.py"}, "checkpointing": {"dir": "file:///data"}},
}


def manifest(**spec: Any) -> dict[str, Any]:
    """Return the minimal manifest with these parts of the spec merged into it, one level deep."""
    document = copy.deepcopy(MINIMAL)
    for name, value in spec.items():
        known = document["spec"].get(name)
        document["spec"][name] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    return document


def refusal(document: object) -> str:
    """Return the text of the error that validating ``document`` raises."""
    with pytest.raises(InvalidInputError) as caught:
        validate_job(document)
    return str(caught.value)
