"""The models of the manifest: each field is described and says what a change costs."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from statefulspark.config.checkpointing import CheckpointingSpec
from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.manifest import validate_job

from .manifests import MINIMAL


def test_models_are_frozen_and_take_python_names() -> None:
    """Code builds models by their Python names; only manifests insist on YAML's."""
    spec = CheckpointingSpec(dir="file:///x", min_pause=0)
    with pytest.raises(ValueError, match="frozen"):
        spec.min_pause = 5  # type: ignore[misc]  # the point of the test


def models() -> list[type[BaseModel]]:
    """Return every model reachable from the manifest."""
    found: list[type[BaseModel]] = []
    waiting: list[type[BaseModel]] = [StatefulSparkJob]
    while waiting:
        model = waiting.pop()
        found.append(model)
        for field in model.model_fields.values():
            kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
            waiting += [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in found]
    return found


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_field_is_described_and_says_what_a_change_costs(model: type[BaseModel]) -> None:
    """The custom resource definition, its documentation and the operator's plan are generated from this."""
    for name, field in model.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name
        if model.__name__ not in {"StatefulSparkJob", "Metadata"}:
            assert isinstance(field.json_schema_extra, dict), name
            assert field.json_schema_extra["change"] in {"ignore", "scale", "upgrade", "reject"}, name


def test_what_a_change_costs() -> None:
    """The fields whose cost is a promise."""
    fields = type(validate_job(MINIMAL).spec).model_fields
    costs = {name: field.json_schema_extra["change"] for name, field in fields.items() if isinstance(field.json_schema_extra, dict)}
    assert costs["parallelism"] == "scale"
    assert costs["max_parallelism"] == "reject"
    assert costs["image"] == costs["job"] == costs["spark_conf"] == costs["restart_nonce"] == "upgrade"
    assert costs["state"] == costs["savepoints"] == costs["upgrade_mode"] == "ignore"


def test_the_schema_has_yaml_names_and_patterns() -> None:
    """What generates the custom resource definition sees camelCase, text for sizes (or the number 0) and bounds for numbers."""
    definitions = StatefulSparkJob.model_json_schema(by_alias=True, mode="serialization")["$defs"]
    executor = definitions["ExecutorSpec"]["properties"]
    size = next(each for each in executor["memory"]["anyOf"] if each.get("type") != "null")
    assert size["x-kubernetes-int-or-string"] is True
    assert size["maximum"] == 0
    assert executor["slots"]["minimum"] == 1
    assert "exchangeTasks" in executor
    assert definitions["CheckpointingSpec"]["properties"]["interval"]["default"] == "1m"
