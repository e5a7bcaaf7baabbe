"""The format of a savepoint: from the spec of a job or a snapshot to the request to the driver."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from statefulspark.config.savepoints import SavepointFormat
from statefulspark.config.snapshot import StateSnapshotSpec
from statefulspark_operator.api.drivers import Driver
from statefulspark_operator.api.snapshots import SnapshotTrigger, StateSnapshotStatus
from statefulspark_operator.reconcile.job.apply.apply_plan import snapshot_object
from statefulspark_operator.reconcile.job.plan.actions import TakeSnapshot
from statefulspark_operator.reconcile.snapshot.plan import SnapshotObservation, plan_snapshot

NOW = datetime(2026, 11, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ({"savepoint": {}}, {"kind": "savepoint", "target": None}),
        ({"savepoint": {"format": "native"}}, {"kind": "savepoint", "target": None}),
        (
            {"savepoint": {"format": "canonical", "path": "s3://bucket/kept"}},
            {"kind": "savepoint", "target": "s3://bucket/kept", "format": "canonical"},
        ),
        ({"checkpoint": {}}, {"kind": "checkpoint", "target": None}),
    ],
)
def test_the_driver_is_asked_for_the_format(source: dict[str, Any], asked: dict[str, Any]) -> None:
    """A driver of an earlier release refuses what it does not know, so a native savepoint names no format."""
    observed = SnapshotObservation(
        now=NOW,
        name="snapshot",
        uid="1",
        generation=1,
        created_at=NOW,
        deleting=False,
        has_finalizer=True,
        awaits_creator=False,
        spec=StateSnapshotSpec.model_validate({"jobReference": {"name": "job"}, **source}),
        problem=None,
        status=StateSnapshotStatus(),
        job_exists=True,
        driver=Driver(state="RUNNING", attempt=1, batch=1, parallelism=2, max_parallelism=128),
    )
    ask = plan_snapshot(observed).ask
    assert ask is not None
    assert {name: value for name, value in ask.items() if name != "key"} == asked


@pytest.mark.parametrize("form", ["canonical", "native"])
def test_a_scheduled_savepoint_has_the_format_of_its_schedule(form: SavepointFormat) -> None:
    """As a snapshot of its own reads it."""
    action = TakeSnapshot(name="job-scheduled-1", trigger=SnapshotTrigger.SCHEDULED, dispose=True, format=form)
    spec = StateSnapshotSpec.model_validate(snapshot_object("here", "job", action)["spec"])
    assert spec.savepoint is not None
    assert (spec.savepoint.format, spec.savepoint.dispose_on_delete, spec.savepoint.already_exists) == (form, True, False)
