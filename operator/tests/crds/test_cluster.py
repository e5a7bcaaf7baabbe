"""A real API server takes the definitions, fills in defaults, prunes, refuses, scales and prints columns as the schemas mean it."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from statefulspark.config.kubernetes.manifest import validate_on_kubernetes
from statefulspark.errors import ConflictError
from statefulspark_operator.api.jobs import StatefulSparkJobStatus
from statefulspark_operator.api.names import FINALIZER, STATUS_MANAGER
from statefulspark_operator.api.snapshots import StateSnapshotStatus
from statefulspark_operator.clients.kubernetes import Cluster, Tree
from tests.crds.refusals import BAD_FORMATS, BAD_JOBS, BAD_SNAPSHOTS, BAD_VALUES, CHANGES, GOOD
from tests.crds.refusals import SNAPSHOT as GOOD_SNAPSHOT
from tests.crds.refusals import with_spec as merged

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[3]
JOB: dict[str, Any] = {
    "apiVersion": "statefulspark.io/v1alpha1",
    "kind": "StatefulSparkJob",
    "metadata": {"name": "flights"},
    "spec": {"job": {"script": "flights.py"}, "checkpointing": {"dir": "s3://bucket/x", "minPause": 0}, "sparkConf": {"spark.x": 4}},
}
SNAPSHOT: dict[str, Any] = {
    "apiVersion": "statefulspark.io/v1alpha1",
    "kind": "StateSnapshot",
    "metadata": {"name": "before-upgrade", "labels": {"statefulspark.io/snapshot-type": "savepoint"}},
    "spec": {"jobReference": {"name": "flights"}, "savepoint": {}},
}
STATUS: dict[str, Any] = {
    "observedGeneration": 2,
    "lifecycleState": "STABLE",
    "lifecycleSince": "2026-11-20T10:00:00Z",
    "lifecycleHistory": [{"state": "STABLE", "since": "2026-11-20T10:00:00Z", "reason": "CheckpointCompleted", "message": "m"}],
    "conditions": [
        {"type": "Valid", "status": "True", "reason": "Checked", "message": "m", "lastTransitionTime": "2026-11-20T10:00:00Z"},
        {
            "type": "Ready",
            "status": "True",
            "reason": "Running",
            "message": "m",
            "lastTransitionTime": "2026-11-20T10:00:00Z",
            "observedGeneration": 2,
        },
    ],
    "jobId": "u-1",
    "jobState": "RUNNING",
    "attempt": 3,
    "epoch": 4,
    "driverPod": "scaled-driver-4",
    "parallelism": 2,
    "desiredParallelism": 3,
    "maxParallelism": 128,
    "labelSelector": "statefulspark.io/job=scaled",
    "executors": 2,
    "keyGroups": [{"slot": 0, "first": 0, "last": 63, "executor": "1"}, {"slot": 1, "first": 64, "last": 127}],
    "batch": -1,
    "lag": {"rows": 184_220, "files": 3},
    "lastCheckpoint": {
        "id": 4,
        "path": "s3://bucket/x/chk-4",
        "completedAt": "2026-11-20T10:00:00Z",
        "sizeBytes": 5_000_000_000,
        "batch": 7,
    },
    "lastSavepoint": {"id": 2, "path": "s3://bucket/s/savepoint-2", "completedAt": "2026-11-20T09:00:00Z"},
    "restoredFrom": "s3://bucket/x/chk-3",
    "memoryPlan": {
        "driver": {"limitBytes": 2_147_483_648, "parts": [{"name": "JVM heap", "sizeBytes": 1_073_741_824}]},
        "managedBytesPerSlot": 67_108_864,
        "warnings": ["w"],
    },
    "transition": {
        "kind": "rescale",
        "step": "wait",
        "since": "2026-11-20T10:00:00Z",
        "generation": 2,
        "fromParallelism": 2,
        "toParallelism": 3,
        "movedKeyGroups": 85,
    },
    "reconciliation": {"state": "DEPLOYED", "lastReconciledSpec": "{}", "lastStableSpec": "{}", "lastReconciledGeneration": 1},
    "error": {"reason": "CheckpointFailed", "message": "m", "since": "2026-11-20T10:00:00Z", "count": 2},
}


def with_spec(name: str, **spec: Any) -> dict[str, Any]:
    """The job under another name, with parts of its spec replaced."""
    document = copy.deepcopy(JOB)
    document["metadata"]["name"] = name
    document["spec"] |= spec
    return document


def status_path(kubectl: Any, plural: str, name: str) -> str:
    """Address of an object's status."""
    return f"/apis/statefulspark.io/v1alpha1/namespaces/{kubectl.namespace}/{plural}/{name}/status"


def write_status(kubectl: Any, plural: str, name: str, status: dict[str, Any]) -> None:
    """Write the status subresource."""
    stored = json.loads(kubectl.ok("get", plural, name, "-o", "json"))
    kubectl.ok("replace", "--raw", status_path(kubectl, plural, name), "-f", "-", given={**stored, "status": status})


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_examples_are_taken_as_they_are(kubectl: Any, path: Path) -> None:
    """The manifest that `statefulspark run` takes is the resource; kubectl finds no unknown field, and the operator no problem."""
    for document in yaml.safe_load_all(path.read_text()):
        stored = kubectl.apply(document)
        if document["kind"] == "StatefulSparkJob":
            validate_on_kubernetes(stored)
            # An example may have two manifests for one job, which could not follow each other: one sets its own number of key groups.
            kubectl.ok("delete", "ssj", document["metadata"]["name"])


def test_defaults_are_filled_in_as_the_tests_without_a_cluster_do(kubectl: Any, jobs: Any, snapshots: Any) -> None:
    """The real server and the small one of these tests agree, so what the other tests say about defaults is true."""
    assert kubectl.apply(named(JOB, "defaulted"))["spec"] == jobs.admit(JOB)[0]["spec"]
    assert kubectl.apply(SNAPSHOT)["spec"] == snapshots.admit(SNAPSHOT)[0]["spec"]


def test_unknown_fields_are_pruned(kubectl: Any) -> None:
    """Inline credentials never reach etcd; pod templates keep what this version of us does not know."""
    template = {"spec": {"containers": [{"name": "x", "anything": {"new": 1}}]}}
    document = with_spec("pruned", typo=1, driver={"podTemplate": template})
    document["spec"]["checkpointing"] = {"dir": "s3://bucket/x", "storage": {"secretAccessKey": "hunter2"}}
    kubectl.ok("create", "--validate=false", "-f", "-", given=document)
    stored = json.loads(kubectl.ok("get", "ssj", "pruned", "-o", "json"))
    assert "typo" not in stored["spec"]
    assert "hunter2" not in json.dumps(stored)
    assert stored["spec"]["driver"]["podTemplate"] == template


@pytest.mark.parametrize(("spec", "field"), BAD_VALUES)
def test_bad_values_are_refused_by_the_schema(kubectl: Any, spec: dict[str, Any], field: str) -> None:
    """Types, enums, bounds and patterns are enforced without any rule or webhook, and the text names the field."""
    assert field in kubectl.refusal(with_spec("bad", **spec))


@pytest.mark.parametrize(("spec", "field", "sentence"), BAD_FORMATS, ids=[field for _, field, _ in BAD_FORMATS])
def test_text_in_another_format_is_told_what_is_expected(kubectl: Any, spec: dict[str, Any], field: str, sentence: str) -> None:
    """The rule in place of a pattern: field and sentence, and no regular expression."""
    told = kubectl.refusal(with_spec("bad", **spec))
    assert field in told
    assert sentence in told
    assert "should match" not in told


def test_names_are_refused_by_the_schema(kubectl: Any) -> None:
    """A job's name becomes part of pod names and labels."""
    assert "metadata.name" in kubectl.refusal(with_spec("a" * 46))
    assert "metadata.name" in kubectl.refusal(with_spec("1st"))


def test_the_scale_subresource_and_the_columns(kubectl: Any) -> None:
    """`kubectl scale` writes spec.parallelism; autoscalers read the status; people see what matters."""
    kubectl.apply(with_spec("scaled", parallelism=2))
    kubectl.ok("scale", "ssj", "scaled", "--replicas", "3")
    stored = json.loads(kubectl.ok("get", "ssj", "scaled", "-o", "json"))
    assert stored["spec"]["parallelism"] == 3
    status = StatefulSparkJobStatus.model_validate(STATUS).to_status()
    write_status(kubectl, "statefulsparkjobs", "scaled", status)
    path = f"/apis/statefulspark.io/v1alpha1/namespaces/{kubectl.namespace}/statefulsparkjobs/scaled"
    stored = json.loads(kubectl.ok("get", "--raw", path))
    assert stored["status"] == status, "the schema prunes or changes nothing that the operator writes"
    assert StatefulSparkJobStatus.model_validate(stored["status"]).to_status() == status
    scale = json.loads(kubectl.ok("get", "--raw", f"{path}/scale"))
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 2, "selector": "statefulspark.io/job=scaled"}
    header, row = (line.split() for line in kubectl.ok("get", "ssj", "scaled").strip().splitlines())
    assert header == ["NAME", "STATE", "READY", "SLOTS", "BEHIND", "RESTARTS", "CHECKPOINT", "RESTORED", "FROM", "AGE"]
    assert row[:6] == ["scaled", "STABLE", "True", "2", "184220", "0"]
    assert row[7] == "s3://bucket/x/chk-3"


def test_columns_of_snapshots(kubectl: Any) -> None:
    """Job, type, state, path and age."""
    kubectl.apply(SNAPSHOT)
    status = StateSnapshotStatus.model_validate(
        {"state": "COMPLETED", "path": "s3://b/s", "resultTimestamp": "2026-11-20T10:00:00Z", "sizeBytes": 1 << 40, "maxParallelism": 128}
    ).to_status()
    write_status(kubectl, "statesnapshots", "before-upgrade", status)
    _, row = (line.split() for line in kubectl.ok("get", "ssnap", "before-upgrade").strip().splitlines())
    assert row[:5] == ["before-upgrade", "flights", "savepoint", "COMPLETED", "s3://b/s"]


def test_a_status_that_cannot_be_is_refused(kubectl: Any) -> None:
    """The schema of the status guards against a faulty operator as well."""
    stored = kubectl.apply(with_spec("odd-status"))
    stored["status"] = {"lifecycleState": "CONFUSED"}
    done = kubectl.run("replace", "--raw", status_path(kubectl, "statefulsparkjobs", "odd-status"), "-f", "-", given=stored)
    assert done.returncode != 0
    assert "status.lifecycleState" in done.stderr


def named(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The object under another name."""
    return {**document, "metadata": {**document["metadata"], "name": name}}


def test_definitions_are_taken_strictly_and_without_a_warning(kubectl: Any) -> None:
    """Every rule compiles, none costs too much, defaults hold the rules, no field is unknown; kubectl would show warnings to everybody."""
    done = kubectl.run("replace", "--dry-run=server", "--validate=strict", "-f", str(ROOT / "crds"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("spec", "message"), BAD_JOBS, ids=[message[:40] for _, message in BAD_JOBS])
def test_bad_jobs_are_refused_by_rules(kubectl: Any, spec: dict[str, Any], message: str) -> None:
    """The real evaluation of the table that the tests without a cluster run as well."""
    assert message in kubectl.refusal(named(merged(GOOD, **spec), "refused"))


@pytest.mark.parametrize(("spec", "message"), BAD_SNAPSHOTS)
def test_bad_snapshots_are_refused_by_rules(kubectl: Any, spec: dict[str, Any], message: str) -> None:
    """The same for StateSnapshot."""
    assert message in kubectl.refusal(named(merged(GOOD_SNAPSHOT, **spec), "refused"))


@pytest.mark.parametrize(("number", "change"), list(enumerate(CHANGES)), ids=[f"{then} {message[:30]}" for _, _, then, message in CHANGES])
def test_what_can_be_changed(kubectl: Any, number: int, change: tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]) -> None:
    """Rules over oldSelf, on real updates of the whole object."""
    document, first, then, message = change
    document = named(document, f"changed-{number}")
    kubectl.apply(merged(document, **first))
    if document["kind"] == "StatefulSparkJob":
        write_status(kubectl, "statefulsparkjobs", document["metadata"]["name"], {"maxParallelism": first.get("maxParallelism", 128)})
    done = kubectl.run("replace", "-f", "-", given=merged(merged(document, **first), **then))
    assert (done.returncode != 0) == bool(message), done.stderr
    assert message in done.stderr


def test_a_rule_holds_when_scaling_too(kubectl: Any) -> None:
    """`kubectl scale` and autoscalers write through the subresource, which is no way around the rules."""
    kubectl.apply(named(merged(GOOD, maxParallelism=4), "scaled-far"))
    done = kubectl.run("scale", "ssj", "scaled-far", "--replicas", "5")
    assert "parallelism: must not exceed maxParallelism" in done.stderr
    kubectl.ok("scale", "ssj", "scaled-far", "--replicas", "4")


def test_key_groups_are_fixed_for_patches_too(kubectl: Any) -> None:
    """Server-side apply, merge patches and status writes go through the same rules; a status write never trips over them."""
    kubectl.apply(named(merged(GOOD, maxParallelism=64), "patched"))
    patch = json.dumps({"spec": {"maxParallelism": 65}})
    assert (
        "spec.maxParallelism: cannot change during the lifetime"
        in kubectl.run("patch", "ssj", "patched", "--type=merge", "-p", patch).stderr
    )
    larger = named(merged(GOOD, maxParallelism=65), "patched")
    done = kubectl.run("apply", "--server-side", "--force-conflicts", "-f", "-", given=larger)
    assert "spec.maxParallelism: cannot change during the lifetime" in done.stderr
    write_status(kubectl, "statefulsparkjobs", "patched", {"maxParallelism": 64, "lifecycleState": "STABLE"})


def test_the_operators_client_owns_status_and_finalizer(kubectl: Any) -> None:
    """Server-side apply of a status: written, shrunk, never the spec's owner, and refused for an earlier version; a finalizer comes and goes beside it."""
    created = kubectl.apply(with_spec("owned"))
    status = StatefulSparkJobStatus.model_validate(STATUS).to_status()

    async def work() -> tuple[Tree, Tree]:
        cluster = await Cluster.connect()
        try:
            where = ("statefulspark.io/v1alpha1", "StatefulSparkJob", kubectl.namespace, "owned")
            version = created["metadata"]["resourceVersion"]
            full = await cluster.apply_status(*where, status, resource_version=version)
            with pytest.raises(ConflictError):
                await cluster.apply_status(*where, {}, resource_version=version)
            patch = {"metadata": {"finalizers": [FINALIZER], "resourceVersion": full["metadata"]["resourceVersion"]}}
            held = await cluster.patch(*where, patch)
            with pytest.raises(ConflictError):
                await cluster.patch(*where, patch)
            assert held is not None
            less = await cluster.apply_status(
                *where,
                {key: value for key, value in status.items() if key not in {"error", "transition"}},
                resource_version=held["metadata"]["resourceVersion"],
            )
            await cluster.patch(*where, {"metadata": {"finalizers": []}})
            return full, less
        finally:
            await cluster.close()

    full, less = asyncio.run(work())
    assert full["status"] == status
    assert less["status"].keys() == status.keys() - {"error", "transition"}
    assert less["spec"] == created["spec"]
    assert less["metadata"]["generation"] == created["metadata"]["generation"]
    owners = {each["manager"]: each for each in less["metadata"]["managedFields"]}
    assert owners[STATUS_MANAGER]["fieldsV1"].keys() == {"f:status"}
