"""Spark's settings on Kubernetes: what the driver's pod says and what the manifest says end up where Spark looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statefulspark.config.manifest import validate_job
from statefulspark.errors import InvalidInputError
from statefulspark.job.spark.kubernetes import MASTER, DriverPod, kubernetes_settings
from statefulspark.job.spark.session import session_settings

ENVIRON = {
    "STATEFULSPARK_POD_NAME": "counts-driver",
    "STATEFULSPARK_POD_NAMESPACE": "shop",
    "STATEFULSPARK_POD_IP": "10.1.2.3",
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
}


def manifest(**spec: Any) -> Any:
    return validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": "counts", "namespace": "shop"},
            "spec": {
                "image": "shop/counts:1",
                "job": {"script": "/app/counts.py"},
                "parallelism": 3,
                "checkpointing": {"dir": "s3://bucket/checkpoints"},
                **spec,
            },
        }
    )


@pytest.mark.parametrize("missing", sorted(ENVIRON))
def test_outside_a_pod_the_missing_variable_is_named(missing: str) -> None:
    environ = {name: value for name, value in ENVIRON.items() if name != missing}
    with pytest.raises(InvalidInputError, match=missing):
        DriverPod.of(environ)


def test_an_ipv6_api_server_gets_brackets() -> None:
    assert DriverPod.of(ENVIRON | {"KUBERNETES_SERVICE_HOST": "fd00::1"}).api_server == "https://[fd00::1]:443"


def test_a_template_that_does_not_exist_is_left_out(tmp_path: Path) -> None:
    template = tmp_path / "executor.yaml"
    environ = ENVIRON | {"STATEFULSPARK_EXECUTOR_POD_TEMPLATE": str(template)}
    assert DriverPod.of(environ).executor_template is None
    template.write_text("spec: {}")
    pod = DriverPod.of(environ)
    assert kubernetes_settings(manifest(), pod, 3)["spark.kubernetes.executor.podTemplateFile"] == str(template)


def test_executors_hold_all_slots() -> None:
    job = manifest(executor={"slots": 2, "exchangeTasks": 1, "cores": 0.5, "memory": "4Gi"})
    settings = kubernetes_settings(job, DriverPod.of(ENVIRON), 3)
    assert settings["spark.executor.instances"] == "2"
    assert settings["spark.executor.cores"] == "3"
    assert settings["spark.kubernetes.executor.request.cores"] == "500m"
    assert kubernetes_settings(job, DriverPod.of(ENVIRON), 5)["spark.executor.instances"] == "3"


def test_executors_reach_the_driver_by_its_address_and_know_each_other_by_a_secret() -> None:
    settings = kubernetes_settings(manifest(), DriverPod.of(ENVIRON | {"STATEFULSPARK_SPARK_SECRET": "counts-spark"}), 3)
    assert settings["spark.driver.host"] == "10.1.2.3"
    assert settings["spark.kubernetes.driver.pod.name"] == "counts-driver"
    assert settings["spark.authenticate"] == settings["spark.network.crypto.enabled"] == "true"
    assert settings["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert settings["spark.network.crypto.saslFallback"] == "false"
    folder = settings["spark.kubernetes.executor.secrets.counts-spark"]
    assert Path(settings["spark.authenticate.secret.file"]).parent == Path(folder)


def test_storage_keys_go_to_executors_by_reference() -> None:
    job = manifest(checkpointing={"dir": "s3://bucket/c", "storage": {"credentialsSecret": "bucket-keys"}})
    settings = kubernetes_settings(job, DriverPod.of(ENVIRON), 3)
    assert settings["spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY"] == "bucket-keys:AWS_SECRET_ACCESS_KEY"
    job = manifest(checkpointing={"dir": "gs://bucket/c", "savepointDir": "s3://bucket/s", "storage": {"credentialsSecret": "keys"}})
    settings = kubernetes_settings(job, DriverPod.of(ENVIRON), 3)
    for name in ("GOOGLE_CREDENTIALS", "AWS_ACCESS_KEY_ID"):
        assert settings[f"spark.kubernetes.executor.secretKeyRef.{name}"] == f"keys:{name}"
    assert "spark.kubernetes.executor.secretKeyRef.AZURE_STORAGE_KEY" not in settings


def test_without_an_image_nothing_starts() -> None:
    with pytest.raises(InvalidInputError, match=r"spec\.image"):
        kubernetes_settings(manifest(image=None), DriverPod.of(ENVIRON), 3)


def test_the_master_kubernetes_becomes_the_address_of_this_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    settings = session_settings(manifest(), MASTER, 3)
    assert settings["spark.master"] == "k8s://https://10.96.0.1:443"
    assert settings["spark.kubernetes.namespace"] == "shop"
    assert settings["spark.log.level"] == "FATAL", "the wait for its own pod is no error"
    assert session_settings(manifest(sparkConf={"spark.log.level": "INFO"}), MASTER, 3)["spark.log.level"] == "INFO"
    assert "spark.log.level" not in session_settings(manifest(), "local[2]", 3)
