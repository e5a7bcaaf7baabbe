"""What a manifest may say on Kubernetes, and what the driver in its pod is given of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.kubernetes.manifest import driver_spec, kubernetes_problems, validate_on_kubernetes, validate_snapshot
from statefulspark.config.manifest import validate_job
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
            "storage": {"credentialsSecret": "s3", "caBundleFrom": {"configMapKeyRef": {"name": "trust"}}},
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


def nested(levels: int) -> dict[str, Any]:
    """A mapping in a mapping in a mapping."""
    tree: dict[str, Any] = {}
    for _ in range(levels):
        tree = {"a": tree}
    return tree


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
                "spec.checkpointing.storage.accessKeyId: only applies to statefulspark run, not to Kubernetes. Put it into a Secret",
                "spec.checkpointing.storage.secretAccessKey: only applies to",
                "spec.checkpointing.storage.sessionToken: only applies to",
            ],
        ),
        ({"api": {"host": "0.0.0.0"}}, ["spec.api: only applies to statefulspark run"]),
        (
            {"sparkConf": {"spark.kubernetes.namespace": "kube-system"}},
            ["spec.sparkConf[spark.kubernetes.namespace]: is set by the operator"],
        ),
        ({"sparkConf": {"spark.kubernetes.authenticate.oauthToken": "hunter2"}}, ["spark.kubernetes.authenticate.oauthToken]: is set by"]),
        (
            {
                "sparkConf": {
                    "spark.hadoop.fs.s3a.secret.key": "hunter2",
                    "spark.ssl.keyPassword": "hunter2",
                    "spark.hadoop.fs.s3a.accessKey": "hunter2",
                    "spark.x.TOKEN": "hunter2",
                    "spark.kubernetes.executor.secretKeyRef.DB": "db:password",
                    "spark.kubernetes.executor.secrets.db": "/etc/db",
                    "spark.speculation": "false",
                }
            },
            [
                "spec.sparkConf[spark.hadoop.fs.s3a.secret.key]: is a secret by Spark's rules",
                "spec.sparkConf[spark.ssl.keyPassword]: is a secret",
                "spec.sparkConf[spark.hadoop.fs.s3a.accessKey]: is a secret",
                "spec.sparkConf[spark.x.TOKEN]: is a secret",
            ],
        ),
        (
            {
                "sparkConf": {
                    "spark.a": "jdbc:postgresql://db/x?user=ada&password=hunter2",
                    "spark.b": "https://ada:hunter2@host/x",
                    "spark.c": "https://a.blob.core.windows.net/c?sv=1&sig=hunter2",
                    "spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword=hunter2",
                    "spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net": "hunter2",
                    "spark.hadoop.fs.azure.sas.c.me.dfs.core.windows.net": "hunter2",
                    "spark.hadoop.fs.gs.auth.service.account.private.key": "hunter2",
                    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:mysql://db/x?password=hunter2",
                    "spark.redaction.regex": "nothing",
                    "spark.sql.redaction.options.regex": "nothing",
                    "spark.d": "-Dpassword=$PASSWORD -Dmode=token",
                    "spark.hadoop.fs.azure.account.keyprovider.me": "org.example.Provider",
                    "spark.hadoop.fs.s3a.aws.credentials.provider": "com.amazonaws.auth.X",
                    "spark.e": "s3a://bucket/a@b:c",
                }
            },
            [
                *(f"spec.sparkConf[spark.{name}]: contains a secret" for name in ("a", "b", "c", "driver.extraJavaOptions")),
                "spec.sparkConf[spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net]: is a secret",
                "spec.sparkConf[spark.hadoop.fs.azure.sas.c.me.dfs.core.windows.net]: is a secret",
                "spec.sparkConf[spark.hadoop.fs.gs.auth.service.account.private.key]: is a secret",
                "spec.sparkConf[spark.hadoop.javax.jdo.option.ConnectionURL]: contains a secret",
                "spec.sparkConf[spark.redaction.regex]: tells Spark which secrets to hide",
                "spec.sparkConf[spark.sql.redaction.options.regex]: tells Spark",
            ],
        ),
        (
            {
                "sparkConf": {
                    "spark.sql.catalog.me.credential": "id:hunter2",
                    "spark.executorEnv.API_KEY": "hunter2",
                    "spark.jars.repositories": "https://hunter2@host/x",
                    "spark.jars.repositories.me": "abfss://container@account/x",
                }
            },
            [
                "spec.sparkConf[spark.executorEnv.API_KEY]: is a secret",
                "spec.sparkConf[spark.jars.repositories]: contains a secret",
                "spec.sparkConf[spark.sql.catalog.me.credential]: is a secret",
            ],
        ),
        (
            {"checkpointing": {"dir": "s3://bucket/x", "storage": {"caBundle": "/dev/ptmx"}}},
            [
                "spec.checkpointing.storage.caBundle: only applies to statefulspark run, not to Kubernetes. Put the certificates into a ConfigMap"
            ],
        ),
        ({"driver": {"podTemplate": {"spec": nested(1000)}}}, ["spec.driver.podTemplate: has more than 32 levels"]),
        ({"executor": {"podTemplate": {"spec": {"a": "x" * 70_000}}}}, ["spec.executor.podTemplate: has more than 64 Ki characters"]),
        (
            {"executor": {"podTemplate": {"spec": {f"a{n}": [{}] * 3_000 for n in range(12)}}}},
            ["spec.executor.podTemplate: has more than 64 Ki characters"],
        ),
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
    document = {**copy.deepcopy(GOOD), "spec": GOOD["spec"] | spec}
    assert len(list(kubernetes_problems(validate_job(document)))) == len(sentences)
    with pytest.raises(InvalidInputError) as caught:
        validate_on_kubernetes(document)
    for sentence in sentences:
        assert sentence in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_ca_bundle_comes_from_one_key_of_one_object() -> None:
    for source in ({}, {"secretKeyRef": {"name": "a"}, "configMapKeyRef": {"name": "b"}}):
        with pytest.raises(InvalidInputError, match="set exactly one of secretKeyRef and configMapKeyRef"):
            validate_on_kubernetes(with_spec(checkpointing={"dir": "s3://bucket/x", "storage": {"caBundleFrom": source}}))


def test_relative_paths_are_the_images() -> None:
    """What is beside the manifest here is below /opt/job there."""
    spec = validate_on_kubernetes(GOOD).spec
    assert spec.job.script == "/opt/job/flights.py"
    assert spec.job.py_files == ("/opt/job/lib", "/abs/x.py")


def test_the_driver_gets_what_a_person_gave_and_no_more() -> None:
    """No defaults (a given number of key groups means more than a default), no pod templates, no reference that only the operator can follow."""
    assert driver_spec(validate_on_kubernetes(GOOD).spec) == {
        "job": {"script": "/opt/job/flights.py", "pyFiles": ["/opt/job/lib", "/abs/x.py"]},
        "parallelism": 2,
        "checkpointing": {
            "dir": "s3://bucket/x",
            "savepointDir": "s3://bucket/s",
            "storage": {"credentialsSecret": "s3", "caBundle": "/etc/statefulspark/storage-ca/ca.crt"},
        },
        "driver": {},
        "executor": {"memory": "8Gi"},
    }
    assert driver_spec(validate_on_kubernetes(with_spec(sparkConf={"spark.master": "local[2]", "spark.x": "y"})).spec)["sparkConf"] == {
        "spark.x": "y"
    }
    driver = as_the_driver_reads_it(GOOD)
    assert driver.spec.max_parallelism_given is False
    assert "restart_strategy" not in driver.spec.model_fields_set


def test_a_given_number_of_key_groups_stays_given() -> None:
    """So the driver refuses state that has another number."""
    assert as_the_driver_reads_it(with_spec(maxParallelism=64)).spec.max_parallelism_given is True


def as_the_driver_reads_it(document: dict[str, Any]) -> StatefulSparkJob:
    return validate_job(document | {"spec": driver_spec(validate_on_kubernetes(document).spec)})


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"jobReference": {"name": "x"}}, "spec.savepoint: set exactly one of savepoint and checkpoint. Write savepoint: {} or"),
        (
            {"jobReference": {"name": "x"}, "savepoint": {"alreadyExists": True}},
            "spec.savepoint.path: is required for an existing savepoint",
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
