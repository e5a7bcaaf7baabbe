"""Secrets of a job on a real API server, with the rights that the chart gives and the garbage collector that replaces them."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import helm_python
import pytest
from cryptography import x509
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import load_kube_config

from statefulspark.errors import InvalidInputError
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.builders.keys import OperatorKey
from statefulspark_operator.clients.connection import Connection
from statefulspark_operator.clients.kubernetes import Cluster
from statefulspark_operator.clients.secrets import operator_key
from statefulspark_operator.reconcile.credentials import JobSecrets
from statefulspark_operator.reconcile.ownership import NameTakenError
from tests.chart.conftest import CHART, documents
from tests.handlers.operators import Rights

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("watched", [False, True], ids=["cluster", "namespaces"])
def test_secrets_are_made_and_replaced_by_who_may_only_create_them(kubectl: Any, tmp_path: Path, watched: bool) -> None:
    """A whole life of a certificate; a Secret of somebody else; and what the API server refuses."""
    system = f"system-{uuid.uuid4().hex[:6]}"
    values = {"watchNamespaces": [kubectl.namespace]} if watched else {}
    with helm_python.Chart.load(CHART) as chart:
        rights = Rights(kubectl, documents(chart.render(values, name="demo", namespace=system)))
    kubectl.ok("create", "namespace", system)
    name = f"counts-{uuid.uuid4().hex[:6]}"

    def made(name: str) -> JobIdentity:
        job_object = {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": name, "namespace": kubectl.namespace},
            "spec": {"state": "suspended", "job": {"script": "a.py"}, "checkpointing": {"dir": "s3://bucket/x"}},
        }
        return JobIdentity(name=name, namespace=kubectl.namespace, uid=kubectl.apply(job_object)["metadata"]["uid"], generation=1)

    job, other = made(name), made(f"{name}-2")

    try:
        for where in (system, None, kubectl.namespace):
            rights.apply(where)
        kubeconfig = rights.kubeconfig(tmp_path / "kubeconfig")
        asyncio.run(_life(kubectl, kubeconfig, system, job, other))
        kubectl.ok("delete", "ssj", name)
        kubectl.ok("wait", "--for=delete", f"secret/{job.secret}", f"secret/{job.certificates}", "--timeout=30s")
    finally:
        rights.remove_cluster_wide()
        kubectl.ok("delete", "namespace", system, "--wait=false")


async def _life(kubectl: Any, kubeconfig: Path, system: str, job: JobIdentity, other: JobIdentity) -> None:
    def secret(of: str) -> Any:
        return json.loads(kubectl.ok("get", "secret", of, "-o", "json"))

    first, second = await _connected(kubeconfig), await _connected(kubeconfig)
    try:
        keys = await asyncio.gather(*(operator_key(each, system, "demo-statefulspark-key") for each in (first, second)))
        assert keys[0] == keys[1], "of two replicas that start at once"
        secrets, now = JobSecrets(first, OperatorKey(keys[0])), datetime.now(UTC)
        assert await secrets.make(job, now) == []
        before = secret(job.certificates)
        assert await secrets.make(job, now) == []
        assert secret(job.certificates) == before
        token = base64.b64decode(secret(job.secret)["data"]["token"]).decode()
        assert token == secrets.token(job.uid)
        assert await secrets.make(job, now + timedelta(days=70)) == []
        after = secret(job.certificates)
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        certificate = x509.load_pem_x509_certificate(base64.b64decode(after["data"]["tls.crt"]))
        for authority in (base64.b64decode(before["data"]["ca.crt"]), secrets.authority(job.name, job.uid).encode()):
            certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        kubectl.ok("delete", "secret", job.secret)
        assert await secrets.make(job, now + timedelta(days=70)) == [f"Secret {job.secret}"]
        again = JobSecrets(second, OperatorKey(b"l" * 32))
        await again.make(job, now)
        assert base64.b64decode(secret(job.secret)["data"]["token"]).decode() == again.token(job.uid)

        theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": other.secret}, "stringData": {"theirs": "1"}}
        kubectl.ok("create", "-f", "-", given=theirs)
        kept = secret(other.secret)
        for _ in range(2):
            with pytest.raises(NameTakenError, match=f"Secret {other.secret} exists"):
                await again.make(other, now)
        assert secret(other.secret) == kept
        for refused in (
            first.get("v1", "Secret", job.namespace, other.secret),
            first.delete("v1", "Secret", job.namespace, other.secret),
            first.patch("v1", "Secret", job.namespace, other.secret, {"metadata": {}}),
            first.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": other.secret, "namespace": job.namespace}}),
            first.uids("v1", "Secret", job.namespace, ""),
            first.get("v1", "Secret", system, "another"),
        ):
            with pytest.raises(InvalidInputError, match="forbidden"):
                await refused
    finally:
        await first.close()
        await second.close()


async def _connected(kubeconfig: Path) -> Cluster:
    configuration = Configuration()
    await load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]  # the package's
    return Cluster(Connection(configuration))
