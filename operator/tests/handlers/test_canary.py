"""The canary goes with its operator, or with a change of its settings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark_operator.handlers.canary import NAME, Canary
from tests.reconcile.cluster import NAMESPACE, MemoryCluster

OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "operator", "uid": "u"}


def canary(cluster: MemoryCluster, **more: Any) -> Canary:
    return Canary(cluster, namespace=NAMESPACE, identity="pod", timeout_s=60, **more)  # type: ignore[arg-type]  # the parts of Cluster that it uses


def test_it_is_removed_when_no_canary_is_wanted() -> None:
    """A person's job of that name stays; without the right to look, the operator starts all the same."""
    cluster = MemoryCluster()
    asyncio.run(canary(cluster)._touch())
    assert ("StatefulSparkJob", NAME) in cluster.objects
    asyncio.run(canary(cluster).remove())
    assert cluster.objects["StatefulSparkJob", NAME]["metadata"].get("deletionTimestamp")
    asyncio.run(canary(cluster).remove())

    cluster = MemoryCluster()
    cluster.store({"kind": "StatefulSparkJob", "metadata": {"name": NAME}})
    asyncio.run(canary(cluster).remove())
    assert not cluster.objects["StatefulSparkJob", NAME]["metadata"].get("deletionTimestamp")

    def forbidden(moment: str) -> None:
        raise InvalidInputError("forbidden")

    cluster.trouble = forbidden
    asyncio.run(canary(cluster).remove())


@pytest.mark.parametrize("older", [False, True])
def test_it_belongs_to_its_owner(older: bool) -> None:
    """From its creation, or from the next touch of one that an older operator has made."""
    cluster = MemoryCluster()
    if older:
        asyncio.run(canary(cluster)._touch())
    asyncio.run(canary(cluster, owners=[OWNER])._touch())
    assert cluster.objects["StatefulSparkJob", NAME]["metadata"]["ownerReferences"] == [OWNER]
