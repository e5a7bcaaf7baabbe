"""What tenants may name: places by their prefixes, endpoints by their hosts, and nothing that is never an object store."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.snapshot import StateSnapshotSpec
from statefulspark_operator.handlers.admission import review
from statefulspark_operator.reconcile.tenancy import Tenancy
from tests.manifests import manifest
from tests.reconcile.cluster import NAMESPACE, JobWorld


def spec(**changes: Any) -> StatefulSparkJobSpec:
    return StatefulSparkJobSpec.model_validate(manifest(**changes))


def at(endpoint: str, **storage: Any) -> dict[str, Any]:
    return manifest(checkpointing={"dir": "s3://bucket/c", "savepointDir": "s3://bucket/s", "storage": {"endpoint": endpoint, **storage}})


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "0x7f000001", "2130706433", "017700000001", "[::1]", "[::ffff:127.0.0.1]", "localhost", "LOCALHOST.", "x.localhost", "localhost.localdomain", "ip6-localhost",
        "169.254.169.254", "169.254.169.254.", "0xa9fea9fe", "0XA9FEA9FE", "[64:ff9b::a9fe:a9fe]", "[::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[fe80::1]", "0.0.0.0", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "192.0.0.192", "metadata.google.internal", "instance-data",
        "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "10.96.0.1", "224.0.0.1",
    ],
)  # fmt: skip
def test_what_is_never_an_object_store_is_refused_whatever_is_allowed(host: str) -> None:
    tenancy = Tenancy(endpoints=("*",), api_server="10.96.0.1")
    problem = tenancy.job_problem("shop", StatefulSparkJobSpec.model_validate(at(f"http://{host}:9000")))
    assert problem is not None
    assert problem.startswith("spec.checkpointing.storage.endpoint: ")
    assert "Use the address of an object store" in problem


@pytest.mark.parametrize(("host", "allowed"), [("minio.shop", True), ("MINIO.shop.", True), ("minio.evil", False), ("10.1.2.3", False)])
def test_endpoints_are_those_of_the_list(host: str, allowed: bool) -> None:
    tenancy = Tenancy(endpoints=("*.shop",))
    assert (tenancy.job_problem("shop", StatefulSparkJobSpec.model_validate(at(f"https://{host}"))) is None) is allowed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dir", "s3://jobs/shop-evil/c"), ("dir", "s3://jobs/other/c"), ("dir", "s3://other/shop/c"), ("savepointDir", "s3://jobs/shopp"),
        ("dir", "file:///data/shop/c"), ("sparkLocation", "file:///mnt"),
    ],
)  # fmt: skip
def test_places_are_those_of_the_list_with_the_tenants_own_name(field: str, value: str) -> None:
    tenancy = Tenancy(locations=("s3://jobs/{namespace}/", "s3://shared"))
    checkpointing = {"dir": "s3://jobs/shop/c", "savepointDir": "s3://shared/s"}
    assert tenancy.job_problem("shop", spec(checkpointing=checkpointing)) is None
    problem = tenancy.job_problem("shop", spec(checkpointing=checkpointing | {field: value}))
    assert problem is not None
    assert problem.startswith(f"spec.checkpointing.{field}: ")
    assert "s3://jobs/shop/" in problem
    initial = tenancy.job_problem("shop", spec(checkpointing=checkpointing, initialSavepointPath="s3://other/s"))
    assert initial is not None
    snapshot = StateSnapshotSpec.model_validate({"jobReference": {"name": "a"}, "savepoint": {"path": "s3://other/s"}})
    assert "spec.savepoint.path" in str(tenancy.snapshot_problem("shop", snapshot))


@given(
    st.lists(st.text("ab%2eE.-", min_size=1, max_size=4), max_size=4),
    st.sampled_from(["s3://jobs/ab", "file:///jobs/ab", "s3://jobs/ab/", "file:///"]),
)
def test_below_means_below_as_a_file_system_reads_it(parts: list[str], folder: str) -> None:
    """A place that is allowed does not leave the folder, however its dots are written; the models refuse such paths in the first place."""
    url = f"{folder.rstrip('/')}/{'/'.join(parts)}"
    try:
        checked = spec(checkpointing={"dir": url, "savepointDir": url})
    except ValueError:
        return
    assert Tenancy(locations=(folder,)).job_problem("shop", checked) is None
    escaped = checked.checkpointing.dir.replace("%2e", ".").replace("%2E", ".").split("/")
    assert ".." not in escaped


def test_the_webhook_and_the_reconciler_refuse_the_same() -> None:
    tenancy = Tenancy(own_namespace=NAMESPACE)
    kind: dict[str, Any] = {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "spec": manifest()}
    new: dict[str, Any] = kind | {"metadata": {"name": "counts", "namespace": NAMESPACE}}
    request = {"uid": "1", "operation": "CREATE", "object": new}
    response = review({"request": request}, tenancy)["response"]
    assert not response["allowed"]
    assert "is the operator's own" in response["status"]["message"]
    canary = new | {"metadata": new["metadata"] | {"labels": {"statefulspark.io/canary": "true"}}}
    assert review({"request": request | {"object": canary}}, tenancy)["response"]["allowed"]

    async def run() -> None:
        world = JobWorld(manifest(), tenancy=tenancy)
        for _ in range(10):
            await world.reconcile()
            world.tick()
        assert not any(kind == "Pod" for kind, _ in world.cluster.objects)
        assert world.job is not None
        conditions = {each["type"]: each for each in world.job["status"]["conditions"]}
        assert conditions["Valid"]["status"] == "False"
        assert "is the operator's own" in conditions["Valid"]["message"]

    asyncio.run(run())


@pytest.mark.parametrize("path", ["s3://other/savepoints/7", "s3://jobs/shop-evil/7"])
def test_a_snapshot_in_a_place_that_is_not_allowed_is_no_initial_state(path: str) -> None:
    """Its path is what a status says, which a driver may have told: refused by the webhook, and by the operator when it starts the job."""
    tenancy = Tenancy(locations=(f"s3://jobs/{NAMESPACE}/",))
    folders = {"dir": f"s3://jobs/{NAMESPACE}/c", "savepointDir": f"s3://jobs/{NAMESPACE}/s"}
    given = manifest(checkpointing=folders, initialSnapshot={"name": "friday"})
    snapshot: dict[str, Any] = {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StateSnapshot",
        "metadata": {"name": "friday", "namespace": NAMESPACE},
        "spec": {"jobReference": {"name": "gone"}, "savepoint": {}},
        "status": {"state": "COMPLETED", "path": path, "observedGeneration": 1},
    }
    kind: dict[str, Any] = {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "spec": given}
    request = {"uid": "1", "operation": "CREATE", "object": kind | {"metadata": {"name": "counts", "namespace": NAMESPACE}}}
    found = {(NAMESPACE, "friday"): snapshot}
    refused = review({"request": request}, tenancy, lambda *key: found.get(key))["response"]
    assert not refused["allowed"]
    assert "spec.initialSnapshot: StateSnapshot friday" in refused["status"]["message"]
    assert review({"request": request}, tenancy)["response"]["allowed"], "one that was not seen yet is looked at when the job starts"

    async def run() -> None:
        world = JobWorld(given, tenancy=tenancy)
        world.cluster.store(snapshot)
        for _ in range(10):
            await world.reconciler.reconcile(("job", NAMESPACE, "counts"))
            world.tick()
        assert world.job is not None
        assert not any(kind in {"Pod", "ConfigMap"} for kind, _ in world.cluster.objects)
        assert world.job["status"]["error"]["reason"] == "SnapshotUnusable"
        assert "not among those that the operator allows" in world.job["status"]["error"]["message"]
        world.cluster.store(snapshot | {"status": snapshot["status"] | {"path": f"s3://jobs/{NAMESPACE}/s/7"}})
        for _ in range(10):
            await world.reconciler.reconcile(("job", NAMESPACE, "counts"))
            world.tick()
        assert world.job["status"]["initialState"] == f"s3://jobs/{NAMESPACE}/s/7"
        assert ("Pod", "counts-driver") in world.cluster.objects

    asyncio.run(run())


_OPENED: list[str] = []
_WATCHING = [False]


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _WATCHING[0] and event == "open" and isinstance(args[0], str):
        _OPENED.append(args[0])


async def whole_life(world: JobWorld) -> None:
    """Deployed, with snapshots that exist and such that are to be removed, lost, suspended, deleted."""
    for number, source in enumerate(({"alreadyExists": True, "path": "s3://bucket/s/x"}, {"disposeOnDelete": True}, {})):
        metadata = {"name": f"s-{number}", "namespace": NAMESPACE}
        world.cluster.store(
            {
                "apiVersion": "statefulspark.io/v1alpha1",
                "kind": "StateSnapshot",
                "metadata": metadata,
                "spec": {"jobReference": {"name": "counts"}, "savepoint": source},
                "status": {"state": "COMPLETED", "path": "s3://bucket/s/y"} if number == 1 else {},
            }
        )
    for number in range(60):
        await world.reconcile()
        world.tick()
        if number == 20 and ("Pod", "counts-driver") in world.cluster.objects:
            world.cluster.remove("Pod", "counts-driver")
        if number == 30:
            await world.cluster.delete("", "StateSnapshot", NAMESPACE, "s-1")
        if number == 40 and world.job is not None:
            world.change(world.job["spec"] | {"state": "suspended"})
        if number == 50:
            await world.cluster.delete("", "StatefulSparkJob", NAMESPACE, "counts")


def test_the_operator_contacts_no_endpoint_and_opens_no_file_that_a_tenant_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a cloud identity in its environment: no connection arrives that could carry it, whatever the job's life."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOPERATOR")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    os.mkfifo(tmp_path / "pipe")  # whoever opens it for reading waits for ever
    sys.addaudithook(_audit)

    async def run() -> None:
        connections: list[object] = []

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(writer)
            writer.close()

        server = await asyncio.start_server(connected, "0.0.0.0", 0)
        port = server.sockets[0].getsockname()[1]
        folder = {"dir": (tmp_path / "pipe").as_uri(), "savepointDir": (tmp_path / "pipe").as_uri()}
        try:
            for given in (
                at(f"http://127.0.0.1:{port}"),
                at(f"http://{socket.gethostname()}:{port}"),
                at(f"http://{socket.gethostname()}:{port}", credentialsSecret="keys"),
                at(f"http://{socket.gethostname()}:{port}", caBundle=str(tmp_path / "pipe")),
                manifest(checkpointing=folder),
            ):
                await whole_life(JobWorld(given))
            await asyncio.sleep(0)
        finally:
            server.close()
        assert not connections

    _WATCHING[0] = True
    try:
        asyncio.run(run())
    finally:
        _WATCHING[0] = False
    assert not [path for path in _OPENED if str(tmp_path) in path]
