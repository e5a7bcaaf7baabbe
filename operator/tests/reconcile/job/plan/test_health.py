"""kstatus and Argo CD read each state of a job as a person would: current, in progress, or failed until somebody acts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from statefulspark_operator.api.jobs import LifecycleState
from statefulspark_operator.api.snapshots import SnapshotState
from statefulspark_operator.reconcile.job.plan.actions import Plan
from tests.lua import health
from tests.manifests import manifest
from tests.reconcile.job.plan.stable_jobs import running
from tests.reconcile.job.plan.world import World

ARGO_CD = Path(__file__).resolve().parents[5] / "charts/statefulspark/files/argocd/statefulspark.io"
EXPECTED = {
    LifecycleState.CREATED: ({"InProgress"}, {"Progressing"}),
    LifecycleState.DEPLOYING: ({"InProgress"}, {"Progressing"}),
    LifecycleState.RUNNING: ({"Current", "InProgress"}, {"Healthy", "Progressing", "Degraded"}),
    LifecycleState.STABLE: ({"Current", "InProgress", "Failed"}, {"Healthy", "Progressing", "Degraded"}),
    LifecycleState.UPGRADING: ({"InProgress"}, {"Progressing"}),
    LifecycleState.RESCALING: ({"InProgress"}, {"Progressing"}),
    LifecycleState.SUSPENDING: ({"InProgress"}, {"Progressing"}),
    LifecycleState.SUSPENDED: ({"Current", "InProgress"}, {"Suspended", "Progressing"}),
    LifecycleState.RECOVERING: ({"InProgress"}, {"Progressing"}),
    LifecycleState.ROLLING_BACK: ({"InProgress"}, {"Progressing"}),
    LifecycleState.ROLLED_BACK: ({"Failed"}, {"Degraded"}),
    LifecycleState.FAILED: ({"Failed"}, {"Degraded"}),
    LifecycleState.FINISHED: ({"Current"}, {"Healthy"}),
    LifecycleState.DELETING: ({"Terminating"}, {"Progressing"}),
}
"""What kstatus and Argo CD may say in each state; in some it depends on whether an operation is under way, or the spec is valid."""


def kstatus(document: dict[str, Any]) -> str:
    """The generic part of kstatus (sigs.k8s.io/cli-utils, pkg/kstatus/status), which is what it knows of a custom resource."""
    status = document["status"]
    if "deletionTimestamp" in document["metadata"]:
        return "Terminating"
    if status["observedGeneration"] != document["metadata"]["generation"]:
        return "InProgress"
    for each in status["conditions"]:
        if (each["type"], each["status"]) == ("Reconciling", "True"):
            return "InProgress"
        if (each["type"], each["status"]) == ("Stalled", "True"):
            return "Failed"
    ready = next((each["status"] for each in status["conditions"] if each["type"] == "Ready"), "True")
    return "Current" if ready == "True" else "InProgress"


@dataclass
class Watched(World):
    """A world that remembers each status as tools would see it."""

    seen: list[dict[str, Any]] = field(default_factory=list)

    def reconcile(self) -> Plan:
        decided = super().reconcile()
        self.seen.append(document(self))
        return decided


def document(world: World) -> dict[str, Any]:
    """The object as the API server has it."""
    metadata = {"generation": world.generation, **({"deletionTimestamp": "2026-11-21T12:00:00Z"} if world.deleting else {})}
    return {"metadata": metadata, "status": world.status.to_status()}


def histories() -> Iterator[Watched]:
    """Jobs that go through all states together."""
    world = Watched(manifest(upgradeMode="savepoint"), broken_images=frozenset({"bad"}))
    world.settle()
    world.change(parallelism=3)
    world.settle()
    world.kill_driver()
    world.settle()
    world.change(image="bad")
    world.settle(rounds=120)
    assert world.status.lifecycle_state == "ROLLED_BACK"
    world.change(image="good")
    world.settle()
    world.change(state="suspended")
    world.settle()
    world.change(state="running")
    world.settle()
    world.deleting = True
    world.settle()
    yield world
    failed = Watched(manifest(image="bad"), broken_images=frozenset({"bad"}))
    failed.settle()
    yield failed
    finished = Watched(manifest())
    finished.settle()
    finished.end("FINISHED", None)
    finished.settle()
    yield finished


@pytest.fixture(scope="module")
def seen() -> list[dict[str, Any]]:
    """Every status of these jobs."""
    return [each for world in histories() for each in world.seen]


def test_every_state_is_read_rightly(seen: list[dict[str, Any]]) -> None:
    """By kstatus (kubectl wait of Flux, kpt, Config Sync) and by the health check for Argo CD."""
    assert {each["status"]["lifecycleState"] for each in seen} == set(LifecycleState)
    found: dict[LifecycleState, tuple[set[str], set[str]]] = {state: (set(), set()) for state in LifecycleState}
    for each in seen:
        of_kstatus, of_argo_cd = found[LifecycleState(each["status"]["lifecycleState"])]
        of_kstatus.add(kstatus(each))
        of_argo_cd.add(health(ARGO_CD / "StatefulSparkJob/health.lua", each)["status"])
    for state, (of_kstatus, of_argo_cd) in found.items():
        assert of_kstatus <= EXPECTED[state][0], state
        assert of_argo_cd <= EXPECTED[state][1], state
    for settled, says in ((LifecycleState.STABLE, "Healthy"), (LifecycleState.SUSPENDED, "Suspended")):
        assert says in found[settled][1]
        assert "Current" in found[settled][0]


def test_a_job_is_ready_or_reconciling_or_stalled(seen: list[dict[str, Any]]) -> None:
    """Exactly one of the three holds in these histories, so no tool waits for a job that waits for a person."""
    for each in seen:
        held = {one["type"] for one in each["status"]["conditions"] if one["status"] == "True"}
        assert len(held & {"Ready", "Reconciling", "Stalled"}) == 1, each["status"]["lifecycleState"]


def test_a_change_that_cannot_be_made_is_stalled() -> None:
    """The job runs as before; a tool that waits for the change hears the reason."""
    world = running()
    world.change(maxParallelism=64)
    world.settle()
    assert kstatus(document(world)) == "Failed"
    said = health(ARGO_CD / "StatefulSparkJob/health.lua", document(world))
    assert said["status"] == "Degraded"
    assert "maxParallelism" in said["message"]


def test_batches_that_fail_are_degraded_at_once() -> None:
    """The operator waits for the driver's retries, so kstatus says in progress; Argo CD shows the error."""
    world = running()
    assert world.process is not None
    world.process = replace(world.process, image="failing")
    world.failing_images = frozenset({"failing"})
    world.settle(rounds=20)
    assert world.status.lifecycle_state == "RUNNING"
    assert kstatus(document(world)) == "InProgress"
    assert health(ARGO_CD / "StatefulSparkJob/health.lua", document(world))["status"] == "Degraded"


def test_a_change_that_nobody_has_seen_is_in_progress() -> None:
    """Before the first status, and before the status is about the newest spec."""
    world = running()
    unseen = document(world)
    unseen["metadata"]["generation"] += 1
    for each in (unseen, {"metadata": {"generation": 1}}):
        assert health(ARGO_CD / "StatefulSparkJob/health.lua", each)["status"] == "Progressing"
    assert kstatus(unseen) == "InProgress"


@pytest.mark.parametrize("state", SnapshotState)
def test_every_state_of_a_snapshot_is_known(state: SnapshotState) -> None:
    """Final states are healthy or degraded, with the path or the error."""
    status = {"state": state.value, "path": "s3://bucket/savepoint-1", "error": "denied"}
    said = health(ARGO_CD / "StateSnapshot/health.lua", {"metadata": {}, "status": status})
    final = {"COMPLETED": ("Healthy", "s3://bucket/savepoint-1"), "FAILED": ("Degraded", "denied"), "ABANDONED": ("Degraded", "denied")}
    assert (said["status"], said["message"]) == final.get(state.value, ("Progressing", state.value))
