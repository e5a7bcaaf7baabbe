"""Spark on Kubernetes in client mode: the driver runs in a pod, and Spark creates the executor pods. Pure: maps environment and manifest to settings.

Spark's "Running Spark on Kubernetes" describes the settings that begin with ``spark.kubernetes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.kubernetes.pods import (
    BLOCK_MANAGER_PORT,
    COMPONENT_LABEL,
    CREDENTIALS,
    DRIVER_PORT,
    EXECUTOR_CONTAINER,
    EXECUTOR_TEMPLATE_VARIABLE,
    JOB_LABEL,
    POD_IP_VARIABLE,
    POD_NAME_VARIABLE,
    POD_NAMESPACE_VARIABLE,
    SPARK_SECRET_FOLDER,
    SPARK_SECRET_KEY,
    SPARK_SECRET_VARIABLE,
)
from statefulspark.errors import InvalidInputError

MASTER: Final = "kubernetes"
"""Value of ``statefulspark run --master`` for the cluster that this pod runs in."""
_SCHEME: Final = "k8s://"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPod:
    """The driver's pod, as described by its environment.

    Attributes:
        name: Executor pods are owned by the pod of this name, so they go with it.
        namespace: Namespace of the executor pods.
        ip: The address by which executors reach the driver; no DNS is needed.
        api_server: URL of the API server.
        executor_template: Path of the pod template for executors, None for Spark's plain one.
        spark_secret: Name of the Kubernetes Secret with Spark's own shared secret under ``spark-secret``; None: Spark makes one.
    """

    name: str
    namespace: str
    ip: str
    api_server: str
    executor_template: str | None = None
    spark_secret: str | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> DriverPod:
        """Read the environment of the driver's container.

        Raises:
            InvalidInputError: A variable is missing: the process does not run in a pod that the operator made.
        """
        values = {
            name: environ.get(name, "")
            for name in (POD_NAME_VARIABLE, POD_NAMESPACE_VARIABLE, POD_IP_VARIABLE, "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
        }
        for name, value in values.items():
            if not value:
                raise InvalidInputError(
                    f"--master {MASTER} only works inside a pod",
                    field=name,
                    remedy="Let the operator run the job, or give the pod this variable from its fieldRef",
                )
        host = values["KUBERNETES_SERVICE_HOST"]
        return cls(
            name=values[POD_NAME_VARIABLE],
            namespace=values[POD_NAMESPACE_VARIABLE],
            ip=values[POD_IP_VARIABLE],
            api_server=f"https://{f'[{host}]' if ':' in host else host}:{values['KUBERNETES_SERVICE_PORT']}",
            executor_template=_existing(environ.get(EXECUTOR_TEMPLATE_VARIABLE)),
            spark_secret=environ.get(SPARK_SECRET_VARIABLE) or None,
        )


def _existing(path: str | None) -> str | None:
    return path if path and Path(path).is_file() else None


def is_on_kubernetes(master: str) -> bool:
    """True if Spark creates its executors as pods."""
    return master.startswith(_SCHEME)


def kubernetes_settings(manifest: StatefulSparkJob, pod: DriverPod, parallelism: int) -> dict[str, str]:
    """Spark's settings for a driver in ``pod`` with executors for ``parallelism`` slots."""
    spec = manifest.spec
    if spec.image is None:
        raise InvalidInputError("no executor image is set", field="spec.image", remedy="Set it to the image of the driver")
    settings = {
        "spark.master": f"{_SCHEME}{pod.api_server}",
        "spark.submit.deployMode": "client",
        "spark.driver.host": pod.ip,
        # Spark tells executors the address that the driver binds to (spark.kubernetes.executor.useDriverPodIP).
        "spark.driver.bindAddress": pod.ip,
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.authenticate": "true",
        # RPC, blocks and shuffles between pods: encrypted, and what was changed on the way is refused (Spark's default AES/CTR does not see it).
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        # A caller that knows neither would otherwise be offered SASL, whose encryption is optional.
        "spark.network.crypto.saslFallback": "false",
        "spark.kubernetes.namespace": pod.namespace,
        "spark.kubernetes.driver.pod.name": pod.name,
        "spark.kubernetes.container.image": spec.image,
        "spark.kubernetes.container.image.pullPolicy": spec.image_pull_policy.value,
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR_CONTAINER,
        f"spark.kubernetes.executor.label.{JOB_LABEL}": manifest.metadata.name,
        f"spark.kubernetes.executor.label.{COMPONENT_LABEL}": "executor",
        "spark.kubernetes.executor.request.cores": f"{round(spec.executor.cores * 1000)}m",
        "spark.executor.cores": str(spec.executor.slots + spec.executor.exchange_tasks),
        "spark.executor.instances": str(spec.executor.instances_for(parallelism)),
        # A lost executor is seen by Spark's watch at once; these bound how long a missed event stays unseen.
        "spark.kubernetes.executor.apiPollingInterval": "5s",
        "spark.kubernetes.executor.missingPodDetectDelta": "10s",
        "spark.kubernetes.allocation.batch.delay": "200ms",
        # The driver has no service of Spark's, and its Role no rights on volume claims.
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        # The driver is ready when batches run, for which executors must be there first.
        "spark.kubernetes.allocation.driver.readinessTimeout": "1s",
        # Over months any number of executors is lost; whether the job is well is decided by its slots and by the operator.
        "spark.executor.maxNumFailures": str((1 << 31) - 1),
    }
    if spec.image_pull_secrets:
        settings["spark.kubernetes.container.image.pullSecrets"] = ",".join(spec.image_pull_secrets)
    if pod.executor_template is not None:
        settings["spark.kubernetes.executor.podTemplateFile"] = pod.executor_template
    if pod.spark_secret is not None:
        settings["spark.authenticate.secret.file"] = f"{SPARK_SECRET_FOLDER}/{SPARK_SECRET_KEY}"
        settings[f"spark.kubernetes.executor.secrets.{pod.spark_secret}"] = SPARK_SECRET_FOLDER
    secret = spec.checkpointing.storage.credentials_secret
    if secret is not None:
        names = [name for scheme in spec.checkpointing.credential_schemes for name in CREDENTIALS[scheme]]
        settings |= {f"spark.kubernetes.executor.secretKeyRef.{name}": f"{secret}:{name}" for name in names}
    return settings
