"""Storage is opened by pods of the job, never by the operator: what it makes, what it believes, and when it gives up."""

from __future__ import annotations

import asyncio
import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from statefulspark.cli.main import build_app
from statefulspark_operator.reconcile.tenancy import Tenancy
from tests.manifests import manifest
from tests.reconcile.cluster import NAMESPACE, JobWorld

STORAGE = {"statefulspark.io/job": "other", "statefulspark.io/component": "storage"}
GOLDEN = Path(__file__).resolve().parents[4] / "runtime/tests/checkpoint/golden/savepoint-memory-v1"
EXISTING = {"alreadyExists": True, "path": "s3://bucket/savepoints/friday"}


class World(JobWorld):
    """A job, one snapshot, and the pods that open storage."""

    def __init__(self, source: dict[str, Any], **spec: Any) -> None:
        super().__init__(manifest(**spec), tenancy=Tenancy(snapshot_locations=("s3://shared",)))
        self.cluster.clock = self._clock
        self.cluster.store(
            {
                "apiVersion": "statefulspark.io/v1alpha1",
                "kind": "StateSnapshot",
                "metadata": {"name": "friday", "namespace": NAMESPACE, "creationTimestamp": self.now.isoformat()},
                "spec": {"jobReference": {"name": "counts"}, "savepoint": source},
            }
        )

    def _clock(self) -> str:
        return self.now.isoformat()

    @property
    def snapshot(self) -> dict[str, Any] | None:
        return self.cluster.objects.get(("StateSnapshot", "friday"))

    @property
    def status(self) -> dict[str, Any]:
        assert self.snapshot is not None
        status: dict[str, Any] = self.snapshot.get("status", {})
        return status

    @property
    def asking(self) -> list[dict[str, Any]]:
        """Pods that open storage."""
        pods = [tree for (kind, _), tree in self.cluster.objects.items() if kind == "Pod"]
        return [pod for pod in pods if pod["metadata"]["labels"]["statefulspark.io/component"] == "storage"]

    @property
    def args(self) -> list[str]:
        (pod,) = self.asking
        args: list[str] = pod["spec"]["containers"][0]["args"]
        return args

    async def looks_at_snapshot(self, times: int = 3) -> None:
        for _ in range(times):
            await self.reconciler.reconcile(("snapshot", NAMESPACE, "friday"))

    def end(self, message: str | None, *, phase: str = "Succeeded") -> None:
        """The one pod ends with a termination message."""
        (pod,) = self.asking
        terminated = {"exitCode": 0, "reason": "Completed", "message": message}
        self.cluster.store(
            {**pod, "status": {"phase": phase, "containerStatuses": [{"name": "driver", "state": {"terminated": terminated}}]}}
        )

    def gone(self) -> None:
        """Deleted pods go."""
        for pod in self.asking:
            if pod["metadata"].get("deletionTimestamp"):
                self.cluster.remove("Pod", pod["metadata"]["name"])

    def delete(self) -> None:
        """A person deletes the snapshot."""
        assert self.snapshot is not None
        metadata = {**self.snapshot["metadata"], "deletionTimestamp": self.now.isoformat()}
        self.cluster.store({**self.snapshot, "metadata": metadata})

    def events(self, reason: str) -> list[str]:
        return [tree["message"] for (kind, _), tree in self.cluster.objects.items() if kind == "Event" and tree["reason"] == reason]


def said(**report: Any) -> str:
    return json.dumps({"version": 1, "snapshot": None, "disposed": False, "error": None} | report)


FOUND = {
    "id": 7, "kind": "savepoint", "path": "s3://bucket/savepoints/friday", "batch": 9, "completed_ms": 1_790_000_000_000, "duration_ms": 5,
    "size_bytes": 100, "max_parallelism": 128,
}  # fmt: skip


def test_what_exists_is_described_by_a_pod_of_the_job() -> None:
    """With the job's image, identity, Secret and authorities; the operator reads no Secret and opens nothing."""

    async def run() -> None:
        storage = {"endpoint": "https://minio.shop:9000", "caBundleFrom": {"secretKeyRef": {"name": "trust", "key": "root.pem"}}}
        world = World(
            EXISTING,
            serviceAccount="shop-jobs",
            checkpointing={
                "dir": "s3://bucket/c",
                "savepointDir": "s3://bucket/savepoints",
                "storage": storage | {"credentialsSecret": "keys"},
            },
        )
        await world.looks_at_snapshot()
        (pod,) = world.asking
        assert (pod["spec"]["serviceAccountName"], pod["spec"]["restartPolicy"]) == ("shop-jobs", "Never")
        assert pod["spec"]["activeDeadlineSeconds"] <= 300
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "StateSnapshot"
        container = pod["spec"]["containers"][0]
        assert container["image"] == "shop/counts:1"
        assert world.args[:3] == ["snapshot", "describe", "s3://bucket/savepoints/friday"]
        assert "--endpoint=https://minio.shop:9000" in world.args
        volume = next(each for each in pod["spec"]["volumes"] if each["name"] == "storage-ca")
        assert volume["secret"] == {"secretName": "trust", "items": [{"key": "root.pem", "path": "ca.crt"}]}
        references = [each["valueFrom"]["secretKeyRef"]["name"] for each in container["env"] if "valueFrom" in each]
        assert set(references) == {"keys"}
        assert not any(kind == "Secret" for kind, _ in world.cluster.objects)
        world.end(said(snapshot=FOUND))
        await world.looks_at_snapshot(2)
        assert world.status["state"] == "COMPLETED"
        assert (world.status["path"], world.status["maxParallelism"], world.status["batch"]) == (FOUND["path"], 128, 9)
        world.gone()
        assert not world.asking

    asyncio.run(run())


@pytest.mark.parametrize(
    "message",
    [
        None, "", "[" * 4000, "[]", "7", '{"version": 2}', said(snapshot={"id": 1}), said(snapshot=FOUND | {"batch": "x"}), said(),
        said(snapshot=FOUND | {"path": "x" * 3000}), said(error=["no"]), said(error={"reason": "Unavailable", "message": "later"}),
    ],
)  # fmt: skip
def test_no_report_stops_the_operator(message: str | None) -> None:
    """A pod of a tenant may say anything: what is no answer is asked again, by another pod, and in the end the snapshot says why it failed."""

    async def run() -> None:
        world = World(EXISTING)
        for _ in range(40):
            await world.looks_at_snapshot(1)
            if world.asking and not world.asking[0].get("status"):
                assert len(world.asking) == 1
                world.end(message)
            world.gone()
            world.now += timedelta(seconds=20)
        assert world.status["state"] == "FAILED"
        assert world.status["error"]
        assert not world.asking

    asyncio.run(run())


def test_a_pod_that_never_starts_is_given_up() -> None:
    async def run() -> None:
        world = World(EXISTING)
        for _ in range(60):
            await world.looks_at_snapshot(1)
            world.gone()
            world.now += timedelta(seconds=20)
        assert world.status["state"] == "FAILED"
        assert "did not complete in time" in world.status["error"]

    asyncio.run(run())


def completed(world: World) -> None:
    assert world.snapshot is not None
    status = {"state": "COMPLETED", "path": world.snapshot["spec"]["savepoint"].get("path", "s3://bucket/savepoints/savepoint-1")}
    world.cluster.store({**world.snapshot, "status": status})


@pytest.mark.parametrize("answer", ["disposed", "unavailable", "refused", "nothing"])
def test_a_finalizer_waits_for_the_disposal_but_not_for_ever(answer: str) -> None:
    async def run() -> None:
        world = World({"disposeOnDelete": True})
        await world.looks_at_snapshot()
        completed(world)
        world.delete()
        await world.looks_at_snapshot()
        assert world.snapshot is not None, "not before the files are gone"
        assert world.args[:3] == ["snapshot", "dispose", "s3://bucket/savepoints/savepoint-1"]
        reports = {
            "disposed": said(disposed=True),
            "unavailable": said(error={"reason": "Unavailable", "message": "no answer"}),
            "refused": said(error={"reason": "InvalidInput", "message": "AccessDenied"}),
        }
        for _ in range(60):
            if answer in reports and world.asking and not world.asking[0].get("status"):
                world.end(reports[answer])
            await world.looks_at_snapshot(1)
            world.gone()
            world.now += timedelta(seconds=20)
        assert ("StateSnapshot", "friday") not in world.cluster.objects
        assert bool(world.events("DisposalSkipped")) is (answer != "disposed")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ({"path": "s3://bucket/savepoints/friday"}, True),
        ({"path": "s3://bucket/checkpoints"}, True),
        ({"path": "s3://shared/savepoints"}, True),
        ({"path": "s3://bucket/savepoints-of-others"}, False),
        ({"path": "s3://victim/savepoints"}, False),
        ({"path": "file:///tmp/statefulspark"}, False),
    ],
)
def test_savepoints_go_into_the_jobs_folders_or_where_the_operator_allows(source: dict[str, Any], allowed: bool) -> None:
    """Whoever may create snapshots does not have the job write, or delete, wherever its identity can."""

    async def run() -> None:
        for spec, act in ((source, "take"), ({**source, "alreadyExists": True, "disposeOnDelete": True}, "dispose")):
            world = World(spec)
            for _ in range(12):
                await world.reconcile()
                world.tick()
            if act == "take":
                assert (world.status["state"] == "FAILED") is not allowed, world.status
                asked = [key for key in world.drivers.operations if key.startswith("snapshot-")]
                assert bool(asked) is allowed
            else:
                completed(world)
                for pod in world.asking:
                    world.cluster.remove("Pod", pod["metadata"]["name"])
                world.delete()
                await world.looks_at_snapshot()
                assert bool(world.asking) is allowed
                assert bool(world.events("DisposalSkipped")) is not allowed

    asyncio.run(run())


def test_few_pods_of_a_namespace_open_storage_at_once() -> None:
    async def run() -> None:
        world = World(EXISTING)
        assert world.snapshot is not None
        for number in range(30):
            metadata = {"name": f"s-{number}", "namespace": NAMESPACE, "creationTimestamp": world.now.isoformat()}
            world.cluster.store({**world.snapshot, "metadata": metadata})
        for _ in range(3):
            for number in range(30):
                await world.reconciler.reconcile(("snapshot", NAMESPACE, f"s-{number}"))
        assert len(world.asking) == 4

    asyncio.run(run())


def test_snapshots_that_wait_for_long_are_looked_at_seldom() -> None:
    """Thousands of them, of one tenant, would else keep the API server busy for as long as they wait."""

    async def run() -> None:
        world = World(EXISTING)
        for number in range(4):
            world.cluster.store({"kind": "Pod", "metadata": {"name": f"p-{number}", "labels": STORAGE}, "spec": {}})
        pauses = []
        for _ in range(60):
            pause = await world.reconciler.reconcile(("snapshot", NAMESPACE, "friday"))
            pauses.append(pause)
            world.now += timedelta(seconds=pause or 0)
        assert pauses[1] == 2
        assert pauses[-1] == 30
        assert len(world.asking) == 4, "of others"

    asyncio.run(run())


def test_the_pods_own_command_describes_and_disposes_of_a_real_savepoint(tmp_path: Path) -> None:
    """What the operator asks for is run as the pod would run it, on a savepoint of an earlier release, and its report is believed."""
    shutil.copytree(GOLDEN, tmp_path / "friday")
    url, log = (tmp_path / "friday").as_uri(), tmp_path / "termination-log"

    def run_pod(world: World) -> None:
        args = [each.replace("/dev/termination-log", str(log)) for each in world.args]
        assert CliRunner().invoke(build_app(), args).exit_code == 0
        world.end(log.read_text())

    async def run() -> None:
        folder = {"dir": tmp_path.as_uri(), "savepointDir": tmp_path.as_uri()}
        world = World({"alreadyExists": True, "path": url, "disposeOnDelete": True}, checkpointing=folder)
        await world.looks_at_snapshot()
        run_pod(world)
        await world.looks_at_snapshot(1)
        assert (world.status["state"], world.status["path"]) == ("COMPLETED", url)
        world.gone()
        world.delete()
        await world.looks_at_snapshot()
        run_pod(world)
        await world.looks_at_snapshot(1)
        assert world.snapshot is None
        assert not (tmp_path / "friday").exists()

    asyncio.run(run())
