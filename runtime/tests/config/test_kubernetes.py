"""What a manifest may say on Kubernetes, and what the driver in its pod is given of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from statefulspark.config import validate_job
from statefulspark.config.kubernetes import driver_manifest, kubernetes_problems, validate_on_kubernetes, validate_snapshot
from statefulspark.errors import InvalidInputError

GOOD: dict[str, Any] = {
    "apiVersion": "statefulspark.io/v1alpha1",
    "kind": "StatefulSparkJob",
    "metadata": {"name": "flights", "namespace": "team", "uid": "u-1", "labels": {"a": "b"}, "resourceVersion": "7"},
    "spec": {
        "job": {"script": "flights.py", "pyFiles": ["lib", "/abs/x.py"]},
        "parallelism": 2,
        "checkpointing": {
            "dir": "s3://bucket/x",
            "savepointDir": "s3://bucket/s",
            "storage": {"credentialsSecret": "s3", "caBundle": "ca.pem"},
        },
        "driver": {"podTemplate": {"spec": {"priorityClassName": "high"}}},
        "executor": {"memory": "8 GiB", "podTemplate": {"metadata": {"labels": {"x": "y"}}}},
        "initialSnapshot": {"name": "before"},
    },
}


def with_spec(**spec: Any) -> dict[str, Any]:
    """The good manifest with parts of the spec replaced."""
    document = copy.deepcopy(GOOD)
    document["spec"] |= spec
    return document


@pytest.mark.parametrize(
    ("spec", "sentences"),
    [
        (
            {
                "checkpointing": {
                    "dir": "s3://bucket/x",
                    "storage": {"accessKeyId": "a", "secretAccessKey": "hunter2hunter2", "sessionToken": "hunter2"},
                }
            },
            [
                "spec.checkpointing.storage.accessKeyId: is only for statefulspark run, not for Kubernetes. Put it into a Secret",
                "spec.checkpointing.storage.secretAccessKey: is only for",
                "spec.checkpointing.storage.sessionToken: is only for",
            ],
        ),
        ({"api": {"host": "0.0.0.0"}}, ["spec.api.host: is only for statefulspark run"]),
        (
            {"sparkConf": {"spark.kubernetes.namespace": "kube-system"}},
            ["spec.sparkConf[spark.kubernetes.namespace]: is set by the operator"],
        ),
        ({"sparkConf": {"spark.kubernetes.authenticate.oauthToken": "hunter2"}}, ["spark.kubernetes.authenticate.oauthToken]: is set by"]),
        ({"driver": {"podTemplate": {"specs": {}}}}, ["spec.driver.podTemplate.specs: is not a field of a pod template"]),
        ({"driver": {"podTemplate": {"spec": []}}}, ["spec.driver.podTemplate.spec: is not a mapping"]),
        (
            {"executor": {"podTemplate": {"spec": {"serviceAccountName": "root"}}}},
            ["spec.executor.podTemplate.spec.serviceAccountName: is set by the operator. Set spec.serviceAccount"],
        ),
    ],
)
def test_what_cannot_be_on_kubernetes_is_refused_there_and_only_there(spec: dict[str, Any], sentences: list[str]) -> None:
    """The command line on this machine takes the same manifest; texts do not repeat values."""
    document = with_spec(**spec)
    assert len(list(kubernetes_problems(validate_job(document)))) == len(sentences)
    with pytest.raises(InvalidInputError) as caught:
        validate_on_kubernetes(document)
    for sentence in sentences:
        assert sentence in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_relative_paths_are_the_images() -> None:
    """What is beside the manifest here is below /opt/job there."""
    spec = validate_on_kubernetes(GOOD).spec
    assert spec.job.script == "/opt/job/flights.py"
    assert spec.job.py_files == ("/opt/job/lib", "/abs/x.py")
    assert spec.checkpointing.storage.ca_bundle == "/opt/job/ca.pem"


def test_the_driver_gets_what_a_person_gave_and_no_more() -> None:
    """No defaults (a given number of key groups means more than a default), no pod templates, no reference that only the operator can follow."""
    document = driver_manifest(validate_on_kubernetes(GOOD), initial_savepoint_path="s3://bucket/s/savepoint-1")
    assert document == {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": "flights", "namespace": "team", "uid": "u-1"},
        "spec": {
            "job": {"script": "/opt/job/flights.py", "pyFiles": ["/opt/job/lib", "/abs/x.py"]},
            "parallelism": 2,
            "checkpointing": {
                "dir": "s3://bucket/x",
                "savepointDir": "s3://bucket/s",
                "storage": {"credentialsSecret": "s3", "caBundle": "/opt/job/ca.pem"},
            },
            "driver": {},
            "executor": {"memory": "8Gi"},
            "initialSavepointPath": "s3://bucket/s/savepoint-1",
        },
    }
    local = driver_manifest(validate_on_kubernetes(with_spec(sparkConf={"spark.master": "local[2]", "spark.x": "y"})))
    assert local["spec"]["sparkConf"] == {"spark.x": "y"}
    driver = validate_job(document)
    assert driver.spec.max_parallelism_given is False
    assert "restart_strategy" not in driver.spec.model_fields_set


def test_a_given_number_of_key_groups_stays_given() -> None:
    """So the driver refuses state that has another number."""
    driver = validate_job(driver_manifest(validate_on_kubernetes(with_spec(maxParallelism=64, initialSnapshot=None))))
    assert driver.spec.max_parallelism_given is True


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"jobReference": {"name": "x"}}, "spec.savepoint: give exactly one of savepoint and checkpoint. Write savepoint: {} or"),
        (
            {"jobReference": {"name": "x"}, "savepoint": {"alreadyExists": True}},
            "spec.savepoint.path: an existing savepoint needs its path",
        ),
        (
            {"jobReference": {"name": "x"}, "savepoint": {"dispose": True}},
            "spec.savepoint.dispose: is not a field. Did you mean disposeOnDelete?",
        ),
        ({"checkpoint": {}}, "spec.jobReference: is missing. Add it: The job"),
        ({"jobReference": {"name": "x"}, "checkpoint": {}, "backoffLimit": -2}, "spec.backoffLimit: -2 is out of bounds. Use -1 or more"),
    ],
)
def test_bad_snapshots_are_refused_with_a_sentence(spec: dict[str, Any], sentence: str) -> None:
    """Field and remedy, as for jobs."""
    with pytest.raises(InvalidInputError) as caught:
        validate_snapshot({"apiVersion": "statefulspark.io/v1alpha1", "kind": "StateSnapshot", "metadata": {"name": "s"}, "spec": spec})
    assert sentence in str(caught.value)


def test_snapshots_of_kubernetes_are_read() -> None:
    """Whatever Kubernetes writes into metadata is left alone, the status is no input; nothing is disposed of unless asked for."""
    snapshot = validate_snapshot(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StateSnapshot",
            "metadata": {"name": "s", "uid": "u", "managedFields": [], "generation": 1, "whatever": 1},
            "spec": {"jobReference": {"name": "x"}, "savepoint": {}},
            "status": {"state": "COMPLETED"},
        }
    )
    assert snapshot.spec.savepoint is not None
    assert snapshot.spec.savepoint.dispose_on_delete is False
    assert snapshot.spec.backoff_limit == 6
