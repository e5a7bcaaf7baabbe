"""The other objects of a job: service, config map, secret, service account, role, disruption budget, network policy. Pure; every call returns a fresh tree."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import yaml

from statefulspark.config.job import API_VERSION, KIND, StatefulSparkJobSpec
from statefulspark.config.kubernetes import pods
from statefulspark.config.kubernetes.manifest import driver_spec
from statefulspark_operator.api.names import COMPONENT_DRIVER, LABEL_JOB
from statefulspark_operator.builders.certificates import Signed
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.builders.pods import executor_template


def service(job: JobIdentity) -> dict[str, Any]:
    """The service by which people and Prometheus reach the driver's API."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": job.metadata(job.driver, COMPONENT_DRIVER),
        "spec": {
            "type": "ClusterIP",
            "selector": job.selector(COMPONENT_DRIVER),
            "ports": [{"name": "api", "port": pods.API_PORT, "targetPort": "api", "protocol": "TCP"}],
            "publishNotReadyAddresses": True,
        },
    }


def config_map(job: JobIdentity, spec: StatefulSparkJobSpec, *, image: str, job_id: str, parallelism: int) -> dict[str, Any]:
    """The manifest that the driver runs, and the template of its executors.

    Args:
        job: whose.
        spec: the spec that is acted on, which during a rollback is not the object's.
        image: for executors, when the spec names none.
        job_id: the job's folder in storage.
        parallelism: slots, which change without a new driver.
    """
    manifest = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": job.name, "namespace": job.namespace, "uid": job_id},
        "spec": driver_spec(spec) | {"image": image, "parallelism": parallelism, "state": "running"},
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": job.metadata(job.config),
        "data": {
            pods.MANIFEST_FILE: yaml.safe_dump(manifest, sort_keys=False),
            pods.EXECUTOR_TEMPLATE_FILE: yaml.safe_dump(executor_template(job, spec), sort_keys=False),
        },
    }


def secret(job: JobIdentity, *, token: str, spark_secret: str) -> dict[str, Any]:
    """The token of the driver's API and the secret by which Spark's processes know each other; made once per job."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": job.metadata(job.secret),
        "type": "Opaque",
        "stringData": {pods.TOKEN_KEY: token, pods.SPARK_SECRET_KEY: spark_secret},
    }


def certificates_secret(job: JobIdentity, *, authority: Signed, signed: Signed) -> dict[str, Any]:
    """The job's certificate and that of the authority that signed it, whose key is in no Secret."""
    data = {
        pods.TLS_CERTIFICATE_FILE: signed.certificate,
        pods.TLS_KEY_FILE: signed.key,
        pods.TLS_AUTHORITY_FILE: authority.certificate,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": job.metadata(job.certificates),
        "type": "Opaque",
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


def network_policy(job: JobIdentity, *, api_from: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Who may connect to the pods of a job: they to each other, and ``api_from`` to the driver's API, which has the metrics too.

    What the pods connect to is not restricted: sources, sinks and storage are the user's.

    Args:
        job: whose.
        api_from: peers in NetworkPolicy's own words; the operator is one of them.
    """
    own = {"podSelector": {"matchLabels": {LABEL_JOB: job.name}}}
    peers = list(api_from)
    api = [{"from": peers, "ports": [{"port": pods.API_PORT, "protocol": "TCP"}]}] if peers else []  # no peers would mean everybody
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": job.metadata(job.network_policy),
        "spec": {"podSelector": own["podSelector"], "policyTypes": ["Ingress"], "ingress": [{"from": [own]}, *api]},
    }


def service_account(job: JobIdentity) -> dict[str, Any]:
    """The account that the driver acts as."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": job.metadata(job.account), "automountServiceAccountToken": True}


def role(job: JobIdentity) -> dict[str, Any]:
    """Rights of the driver: executor pods, and the ConfigMaps that Spark creates for them."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": job.metadata(job.account),
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "patch", "delete", "deletecollection"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "delete", "deletecollection"]},
        ],
    }


def role_binding(job: JobIdentity) -> dict[str, Any]:
    """Gives the role to the account."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": job.metadata(job.account),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": job.account},
        "subjects": [{"kind": "ServiceAccount", "name": job.account, "namespace": job.namespace}],
    }


def disruption_budget(job: JobIdentity, *, api_version: str = "policy/v1") -> dict[str, Any]:
    """Says that a drained node may take the driver: it goes on elsewhere from its last checkpoint.

    Never maxUnavailable: the driver's controller is the job, so Kubernetes reads how many pods there should be from the job's scale, which
    counts slots, and with two slots or more no eviction of the one driver would ever be allowed.
    """
    return {
        "apiVersion": api_version,
        "kind": "PodDisruptionBudget",
        "metadata": job.metadata(job.disruption_budget, COMPONENT_DRIVER),
        "spec": {"minAvailable": 0, "selector": {"matchLabels": job.selector(COMPONENT_DRIVER)}},
    }
