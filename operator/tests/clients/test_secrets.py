"""The operator's key: made once, by whoever is first."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark_operator.builders.keys import KEY_BYTES
from statefulspark_operator.clients.secrets import operator_key
from tests.reconcile.cluster import MemoryCluster

NAME = ("Secret", "operator-key")


def read(cluster: Any) -> bytes:
    return asyncio.run(operator_key(cluster, "system", "operator-key"))


def test_all_replicas_have_the_key_of_the_first() -> None:
    cluster = MemoryCluster()
    key = read(cluster)
    assert len(key) == KEY_BYTES
    assert read(cluster) == key
    assert read(MemoryCluster()) != key


def test_somebody_who_is_quicker_has_made_the_key() -> None:
    cluster = MemoryCluster()
    theirs = b"t" * KEY_BYTES

    def quick(moment: str) -> None:
        if moment == "create" and NAME not in cluster.objects:
            metadata = {"name": "operator-key", "namespace": "system"}
            cluster.store({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key": base64.b64encode(theirs).decode()}})

    cluster.trouble = quick
    assert read(cluster) == theirs


def test_the_key_outlives_what_made_it_and_cannot_be_edited() -> None:
    cluster = MemoryCluster()
    read(cluster)
    secret = cluster.objects[NAME]
    assert "ownerReferences" not in secret["metadata"]
    assert secret["immutable"] is True


@pytest.mark.parametrize("data", [{}, {"key": "%%%"}, {"other": "eA=="}, None])
def test_a_secret_without_a_key_is_named(data: Any) -> None:
    cluster = MemoryCluster()
    cluster.store({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "operator-key", "namespace": "system"}, "data": data})
    with pytest.raises(InvalidInputError, match="system/operator-key holds no key"):
        read(cluster)


def test_a_key_that_is_deleted_at_once_is_asked_for_again() -> None:
    cluster = MemoryCluster()

    def removed(moment: str) -> None:
        if moment == "created":
            cluster.remove(*NAME)

    cluster.trouble = removed
    with pytest.raises(ConflictError):
        read(cluster)
