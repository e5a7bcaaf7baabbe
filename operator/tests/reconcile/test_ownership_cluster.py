"""A real API server keeps an object of somebody else as it is, whoever comes first, and a child of the job follows its document."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from statefulspark.errors import ConflictError
from statefulspark_operator.builders import children
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.clients.kubernetes import Cluster, Tree
from statefulspark_operator.reconcile.ownership import NameTakenError, apply_owned, owned_uid

pytestmark = pytest.mark.cluster


def test_children_are_made_where_the_name_is_free_and_never_taken_from_others(kubectl: Any) -> None:
    """Service and Role of somebody else; a child that is replaced between reading and writing; a field that a later document drops."""
    job_object = {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": "payments", "namespace": kubectl.namespace},
        "spec": {"state": "suspended", "job": {"script": "a.py"}, "checkpointing": {"dir": "s3://bucket/x"}},
    }
    uid = kubectl.apply(job_object)["metadata"]["uid"]
    job = JobIdentity(name="payments", namespace=kubectl.namespace, uid=uid, generation=1)
    service, role = children.service(job), children.role(job)
    theirs = {**service, "metadata": {"name": job.driver, "namespace": kubectl.namespace, "labels": {"app": "theirs"}}}
    kubectl.apply(theirs | {"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}})
    before = kubectl.ok("get", "service", job.driver, "-o", "json")

    async def work() -> None:
        cluster = await Cluster.connect()
        try:
            with pytest.raises(NameTakenError, match="Service payments-driver exists"):
                await owned_uid(cluster, service, job)
            with pytest.raises(NameTakenError):
                await apply_owned(cluster, service, job, None)
            made = await apply_owned(cluster, role, job, None)
            assert made["rules"] == role["rules"]
            for document in (children.role_binding(job), children.service_account(job)):
                assert (await apply_owned(cluster, document, job, None))["metadata"]["ownerReferences"][0]["uid"] == uid
            await _followed(cluster, job)
            with pytest.raises(ConflictError):
                await apply_owned(cluster, role, job, "00000000-0000-0000-0000-000000000000")
        finally:
            await cluster.close()

    asyncio.run(work())
    assert kubectl.ok("get", "service", job.driver, "-o", "json") == before
    owners = json.loads(kubectl.ok("get", "role", job.account, "-o", "json"))["metadata"]["ownerReferences"]
    assert [each["uid"] for each in owners] == [uid]


async def _followed(cluster: Cluster, job: JobIdentity) -> None:
    """What a first document held and a later one drops is gone: it was applied, not created."""
    first: Tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": job.metadata(job.config), "data": {"a": "1", "b": "2"}}
    await apply_owned(cluster, first, job, await owned_uid(cluster, first, job))
    then = await apply_owned(cluster, {**first, "data": {"a": "1"}}, job, await owned_uid(cluster, first, job))
    assert then["data"] == {"a": "1"}
