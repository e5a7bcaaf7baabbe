"""What a change of a spec costs: each field by its own declaration, values rather than spellings."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from statefulspark.config.changes import Change, Cost, dearest, field_costs, named, refusal, spec_changes
from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.manifest import validate_job
from statefulspark.config.snapshot import StateSnapshotSpec

BASE: dict[str, Any] = {
    "apiVersion": "statefulspark.io/v1alpha1",
    "kind": "StatefulSparkJob",
    "metadata": {"name": "flights"},
    "spec": {
        "job": {"script": "flights.py"},
        "checkpointing": {"dir": "s3://bucket/x", "savepointDir": "s3://bucket/s", "interval": "60s"},
    },
}


def spec(**changes: Any) -> StatefulSparkJobSpec:
    """The base with dotted fields set; None removes."""
    document = copy.deepcopy(BASE)
    for path, value in changes.items():
        owner = document["spec"]
        *parents, name = path.split("__")
        for parent in parents:
            owner = owner.setdefault(parent, {})
        if value is None:
            owner.pop(name)
        else:
            owner[name] = value
    return validate_job(document).spec


@pytest.mark.parametrize(
    ("changes", "field", "cost"),
    [
        ({"image": "x:2"}, "image", Cost.UPGRADE),
        ({"parallelism": 3}, "parallelism", Cost.SCALE),
        ({"state": "suspended"}, "state", Cost.IGNORE),
        ({"checkpointing__interval": "61s"}, "checkpointing.interval", Cost.UPGRADE),
        ({"checkpointing__savepointDir": None}, "checkpointing.savepointDir", Cost.IGNORE),
        ({"executor__managedMemory": {"size": "64Mi"}}, "executor.managedMemory.size", Cost.UPGRADE),
        ({"savepoints__schedule": {"cron": "0 3 * * *"}}, "savepoints.schedule", Cost.IGNORE),
        ({"job__args": ["a"]}, "job.args", Cost.UPGRADE),
        ({"maxParallelism": 64}, "maxParallelism", Cost.REJECT),
        ({"maxParallelism": 128}, "maxParallelism", Cost.REJECT),
        ({"restartStrategy": {}}, "restartStrategy", Cost.UPGRADE),
        ({"driver__podTemplate": {"spec": {}}}, "driver.podTemplate", Cost.UPGRADE),
        ({"lastStateMaxCheckpointAge": "1h"}, "lastStateMaxCheckpointAge", Cost.IGNORE),
    ],
)
def test_a_changed_field_is_named_with_its_cost(changes: dict[str, Any], field: str, cost: Cost) -> None:
    """One change is found, in both directions."""
    assert spec_changes(spec(), spec(**changes)) == (Change(field, cost),)
    assert spec_changes(spec(**changes), spec()) == (Change(field, cost),)


@pytest.mark.parametrize(
    "changes",
    [{}, {"checkpointing__interval": "1m"}, {"executor__memory": "4 GiB"}, {"savepoints": {"history": {"count": 10}}}, {"driver": {}}],
)
def test_spellings_and_written_defaults_change_nothing(changes: dict[str, Any]) -> None:
    """The API server writes defaults into objects; that must not restart every job."""
    assert spec_changes(spec(), spec(**changes)) == ()


def test_the_known_number_of_key_groups_may_be_written_down() -> None:
    """Only that number, and it stays once it is there."""
    assert spec_changes(spec(), spec(maxParallelism=128), key_groups=128) == ()
    assert spec_changes(spec(), spec(maxParallelism=64), key_groups=128) == (Change("maxParallelism", Cost.REJECT),)
    assert spec_changes(spec(maxParallelism=64), spec(maxParallelism=128), key_groups=128) == (Change("maxParallelism", Cost.REJECT),)


def test_more_slots_do_not_look_like_more_key_groups() -> None:
    """The default number of key groups follows parallelism only when the job is new."""
    before, after = spec(parallelism=2), spec(parallelism=200)
    assert before.max_parallelism != after.max_parallelism
    assert spec_changes(before, after, key_groups=256) == (Change("parallelism", Cost.SCALE),)


def test_the_key_groups_of_the_state_limit_the_slots() -> None:
    """Not Flink's default for the new number of slots, which no state has."""
    assert spec_changes(spec(parallelism=80), spec(parallelism=90), key_groups=128) == (Change("parallelism", Cost.SCALE),)
    assert spec_changes(spec(parallelism=80), spec(parallelism=129), key_groups=128) == (Change("parallelism", Cost.REJECT),)
    assert spec_changes(spec(parallelism=80), spec(parallelism=129)) == (Change("parallelism", Cost.SCALE),)


def test_a_refusal_names_field_and_remedy() -> None:
    """One sentence for each field that cannot change."""
    assert refusal(spec(), spec(image="x"), key_groups=128) is None
    assert "spec.parallelism: 129 slots" in str(refusal(spec(), spec(parallelism=129), key_groups=128))
    assert "Use 128 at most" in str(refusal(spec(), spec(parallelism=129), key_groups=128))
    both = str(refusal(spec(maxParallelism=128), spec(maxParallelism=256, parallelism=129), key_groups=128))
    assert "spec.maxParallelism" in both
    assert "spec.parallelism" in both


def test_the_dearest_change_decides() -> None:
    """Costs are ordered."""
    changes = spec_changes(spec(), spec(parallelism=2, image="x", state="suspended"))
    assert dearest(changes) is Cost.UPGRADE
    assert dearest(()) is None
    assert named(changes) == "image, parallelism"
    assert named(spec_changes(spec(), spec(state="suspended"))) == "state"


def test_every_leaf_field_has_a_cost() -> None:
    """The operator plans from these; a field without one raises here."""
    costs = field_costs(StatefulSparkJobSpec)
    assert len(costs) > 70
    assert costs["parallelism"] is Cost.SCALE
    assert costs["maxParallelism"] is Cost.REJECT
    assert costs["restartStrategy.fixedDelay.attempts"] is Cost.UPGRADE
    assert {path for path, cost in costs.items() if cost is Cost.REJECT} == {"maxParallelism"}
    assert {path for path, cost in costs.items() if cost is Cost.SCALE} == {"parallelism", "executor.instances"}
    assert field_costs(StateSnapshotSpec)["savepoint.disposeOnDelete"] is Cost.IGNORE
