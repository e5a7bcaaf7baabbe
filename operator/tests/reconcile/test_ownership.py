"""Objects of others are never taken over: a job whose children's names are taken says so, by name, and touches nothing."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Any

import pytest

from statefulspark.errors import ConflictError, StatefulSparkError
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.reconcile.ownership import NameTakenError, apply_owned, check_owner, owned_uid
from tests.manifests import manifest
from tests.reconcile.cluster import NAMESPACE, JobWorld, MemoryCluster

Tree = dict[str, Any]
JOB = JobIdentity(name="counts", namespace=NAMESPACE, uid="u-1", generation=1)


def foreign(kind: str, name: str, **fields: Any) -> Tree:
    """An object that somebody else has made."""
    versions = {"Role": "rbac.authorization.k8s.io/v1", "RoleBinding": "rbac.authorization.k8s.io/v1", "PodDisruptionBudget": "policy/v1"}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app": "theirs"}}
    return {"apiVersion": versions.get(kind, "v1"), "kind": kind, "metadata": metadata, "data": {"theirs": "1"}, **fields}


async def look_on(world: JobWorld, reconciler: int) -> None:
    for _ in range(reconciler):
        with contextlib.suppress(StatefulSparkError):
            await world.reconcile()
        world.tick()


def status(world: JobWorld) -> Any:
    assert world.job is not None
    return world.job["status"]


def condition(world: JobWorld, type_: str) -> Any:
    return next(each for each in status(world)["conditions"] if each["type"] == type_)


CHILDREN = [
    ("Service", "counts-driver"),
    ("ConfigMap", "counts-config"),
    ("Secret", "counts-driver"),
    ("ServiceAccount", "counts-driver"),
    ("Role", "counts-driver"),
    ("RoleBinding", "counts-driver"),
    ("PodDisruptionBudget", "counts-driver"),
    ("Pod", "counts-driver"),
]


@pytest.mark.parametrize(("kind", "name"), CHILDREN)
def test_an_object_of_somebody_else_stays_as_it_is_and_the_job_names_it(kind: str, name: str) -> None:
    """With a condition and one event; the job starts when the name is free."""

    async def run() -> None:
        world = JobWorld(manifest())
        before = copy.deepcopy(world.cluster.store(foreign(kind, name, status={"phase": "Running"})))
        await look_on(world, 12)
        assert world.cluster.objects[kind, name] == before
        assert ("Pod", "counts-driver") not in world.cluster.objects or kind == "Pod"
        assert f"{kind} {name} exists in namespace {NAMESPACE}" in status(world)["error"]["message"]
        assert condition(world, "Stalled")["status"] == "True"
        assert condition(world, "Stalled")["reason"] == "NameTaken"
        assert condition(world, "Ready")["status"] == "False"
        told = [each for (what, _), each in world.cluster.objects.items() if what == "Event" and each["reason"] == "NameTaken"]
        assert len(told) == 1
        assert "restarts" not in status(world) or not status(world)["restarts"]
        world.cluster.remove(kind, name)
        world.pod_age = 0
        await look_on(world, 20)
        assert status(world)["lifecycleState"] == "STABLE"
        assert "error" not in status(world)

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["Service", "ConfigMap"])
def test_nothing_is_made_for_a_job_of_which_one_name_is_taken(kind: str) -> None:
    """Half of a job's children would only be in the way."""

    async def run() -> None:
        world = JobWorld(manifest())
        name = "counts-config" if kind == "ConfigMap" else "counts-driver"
        world.cluster.store(foreign(kind, name))
        await look_on(world, 12)
        kinds = {what for what, _ in world.cluster.objects} - {"StatefulSparkJob", "Event"}
        assert kinds == {kind}

    asyncio.run(run())


def test_an_object_put_in_a_childs_place_is_not_taken_over_by_a_repair() -> None:
    """The job runs on."""

    async def run() -> None:
        world = JobWorld(manifest())
        await look_on(world, 20)
        world.cluster.remove("Service", "counts-driver")
        before = copy.deepcopy(world.cluster.store(foreign("Service", "counts-driver")))
        await look_on(world, 6)
        assert world.cluster.objects["Service", "counts-driver"] == before
        assert condition(world, "Stalled")["reason"] == "NameTaken"
        assert ("Pod", "counts-driver") in world.cluster.objects
        world.cluster.remove("Service", "counts-driver")
        world.tick(60)
        await look_on(world, 6)
        assert world.cluster.objects["Service", "counts-driver"]["metadata"]["ownerReferences"][0]["name"] == "counts"
        assert "error" not in status(world)

    asyncio.run(run())


def test_a_pod_that_only_has_the_drivers_labels_is_never_given_the_token() -> None:
    async def run() -> None:
        world = JobWorld(manifest())
        pod = foreign("Pod", "counts-driver")
        pod["metadata"]["labels"] = {"statefulspark.io/job": "counts", "statefulspark.io/component": "driver"}
        world.cluster.store({**pod, "status": {"phase": "Running", "podIP": "10.6.6.6"}})
        asked: list[str] = []
        world.cluster.trouble = asked.append
        await look_on(world, 12)
        assert "fetch" not in asked
        assert condition(world, "Stalled")["reason"] == "NameTaken"

    asyncio.run(run())


def test_a_child_of_an_earlier_job_of_the_name_is_waited_for() -> None:
    """Kubernetes removes it with that job."""
    reference = {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "name": "counts", "uid": "u-0", "controller": True}
    child = foreign("Service", "counts-driver")
    child["metadata"]["ownerReferences"] = [reference]
    with pytest.raises(ConflictError, match="deleted job of the same name"):
        check_owner(child, JOB)
    child["metadata"]["ownerReferences"] = [reference | {"kind": "Deployment"}]
    with pytest.raises(NameTakenError):
        check_owner(child, JOB)
    child["metadata"]["ownerReferences"] = [reference | {"uid": JOB.uid, "controller": False}]
    with pytest.raises(NameTakenError):
        check_owner(child, JOB)
    child["metadata"]["ownerReferences"] = [reference | {"uid": JOB.uid}]
    check_owner(child, JOB)


def test_no_child_is_created_with_less_than_its_selector() -> None:
    """An empty one in a network policy or a disruption budget is that of every pod of the namespace."""

    async def run() -> None:
        world = JobWorld(manifest(), job_api_from=())
        created: dict[str, Tree] = {}
        create = world.cluster.create

        async def recording(document: Tree, *, dry_run: bool = False) -> Tree | None:
            created[document["kind"]] = copy.deepcopy(document)
            return await create(document, dry_run=dry_run)

        world.cluster.create = recording  # type: ignore[method-assign]  # to see what is created
        await look_on(world, 12)
        for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            assert created[kind]["spec"] == world.cluster.objects[kind, created[kind]["metadata"]["name"]]["spec"]
        assert "data" not in created["ConfigMap"]

    asyncio.run(run())


@pytest.mark.parametrize("moment", ["get", "create", "apply"])
def test_somebody_who_is_quicker_keeps_his_object(moment: str) -> None:
    """Between reading and writing: whatever is there at the write and is not ours stays."""

    async def run() -> None:
        cluster: Any = MemoryCluster()
        child = foreign("Service", "counts-driver", spec={"ports": [{"port": 8480}]})
        child["metadata"] |= JOB.metadata("counts-driver")
        theirs: list[Tree] = []

        def quick(at: str) -> None:
            if at == moment and not theirs:
                theirs.append(
                    cluster.store(
                        {
                            **foreign("Service", "counts-driver"),
                            "metadata": {**foreign("Service", "counts-driver")["metadata"], "uid": "theirs"},
                        }
                    )
                )

        cluster.trouble = quick
        with pytest.raises((NameTakenError, ConflictError)):
            await apply_owned(cluster, child, JOB, await owned_uid(cluster, child, JOB))
        assert cluster.objects["Service", "counts-driver"] == theirs[0]

    asyncio.run(run())
