"""An S3 server in the cluster (moto, in a pod of our own image) and what the tests do with it. The only home of boto3 here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import boto3
from botocore.config import Config

from e2e.harness.kubectl import Kubectl
from e2e.harness.timeouts import POD_READY_S

BUCKET: Final = "state"
SECRET: Final = "store-keys"  # noqa: S105  the name of a Secret, and moto asks for no real keys
KEYS: Final = {"AWS_ACCESS_KEY_ID": "e2e", "AWS_SECRET_ACCESS_KEY": "e2e-secret"}
_PORT: Final = 9000


class Store:
    """The store, from the tests' side."""

    def __init__(self, *, port: int, endpoint: str) -> None:
        self.endpoint = endpoint
        """Address for pods."""
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"max_attempts": 5}, connect_timeout=10, read_timeout=30),
        )
        self._read: dict[str, Any] = {}

    def make_bucket(self) -> None:
        """Make the bucket of all jobs."""
        self._client.create_bucket(Bucket=BUCKET)

    def keys(self, prefix: str) -> list[str]:
        """Names of all objects that begin so."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def put(self, key: str) -> None:
        """Make an empty object."""
        self._client.put_object(Bucket=BUCKET, Key=key, Body=b"")

    def delete(self, key: str) -> None:
        """Delete an object."""
        self._client.delete_object(Bucket=BUCKET, Key=key)

    def json(self, key: str) -> Any:
        """Contents of an object that never changes."""
        if key not in self._read:
            self._read[key] = json.loads(self._client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
        return self._read[key]

    def size_bytes(self, prefix: str) -> int:
        """Size of all objects that begin so, by one listing: each may be deleted at any time."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return sum(each["Size"] for page in pages for each in page.get("Contents", ()))


@contextmanager
def store_in(kubectl: Kubectl, image: str) -> Iterator[Store]:
    """Run a store in a namespace of its own."""
    kubectl.create_namespace()
    kubectl.apply(_pod(image))
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "store"},
            "spec": {"selector": {"app": "store"}, "ports": [{"port": _PORT, "protocol": "TCP"}]},
        }
    )
    kubectl.ok("wait", "pod/store", "--for=condition=Ready", f"--timeout={POD_READY_S}s")
    address = kubectl.get("service", "store")["spec"]["clusterIP"]  # there may be no DNS
    try:
        with kubectl.forwarded("pod/store", _PORT) as port:
            store = Store(port=port, endpoint=f"http://{address}:{_PORT}")
            store.make_bucket()
            yield store
    finally:
        kubectl.delete_namespace(wait=False)


def _pod(image: str) -> dict[str, Any]:
    container = {
        "name": "store",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"containerPort": _PORT}],
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
        "readinessProbe": {"tcpSocket": {"port": _PORT}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "store", "labels": {"app": "store"}},
        "spec": {"containers": [container], "enableServiceLinks": False, "terminationGracePeriodSeconds": 1},
    }
