"""A real API server takes the definitions, fills in defaults, prunes, refuses, scales and prints columns as the schemas mean it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from statefulspark.config.kubernetes import validate_on_kubernetes
from statefulspark_operator.api.jobs import StatefulSparkJobStatus
from statefulspark_operator.api.snapshots import StateSnapshotStatus

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


def test_defaults_are_filled_in_as_the_tests_without_a_cluster_do(kubectl: Any, jobs: Any, snapshots: Any) -> None:
    """The real server and the small one of these tests agree, so what the other tests say about defaults is true."""
    assert kubectl.apply(JOB)["spec"] == jobs.admit(JOB)[0]["spec"]
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


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"parallelism": 0}, "spec.parallelism"),
        ({"parallelism": "2"}, "spec.parallelism"),
        ({"maxParallelism": 32769}, "spec.maxParallelism"),
        ({"executor": {"memory": "lots"}}, "spec.executor.memory"),
        ({"executor": {"memory": 4096}}, "spec.executor.memory"),
        ({"executor": {"cores": "1 core"}}, "spec.executor.cores"),
        ({"upgradeMode": "savepiont"}, "spec.upgradeMode"),
        ({"stateBackend": {"rocksdb": {"memory": {"writeBufferRatio": 1}}}}, "spec.stateBackend.rocksdb.memory.writeBufferRatio"),
        ({"stateBackend": {"rocksdb": {"metrics": ["nonsense"]}}}, "spec.stateBackend.rocksdb.metrics"),
        ({"checkpointing": {"dir": "/data"}}, "spec.checkpointing.dir"),
        ({"checkpointing": {"dir": "s3://bucket/x", "interval": 10}}, "spec.checkpointing.interval"),
        ({"checkpointing": {}}, "spec.checkpointing.dir"),
        ({"serviceAccount": "Not a name"}, "spec.serviceAccount"),
        ({"restartStrategy": {"exponentialDelay": {"jitterFactor": 2}}}, "spec.restartStrategy.exponentialDelay.jitterFactor"),
    ],
)
def test_bad_values_are_refused_by_the_schema(kubectl: Any, spec: dict[str, Any], field: str) -> None:
    """Types, enums, bounds and patterns are enforced without any rule or webhook, and the text names the field."""
    assert field in kubectl.refusal(with_spec("bad", **spec))


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
    assert header == ["NAME", "STATE", "READY", "SLOTS", "CHECKPOINT", "RESTORED", "FROM", "AGE"]
    assert row[:4] == ["scaled", "STABLE", "True", "2"]
    assert row[5] == "s3://bucket/x/chk-3"


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
