"""The operator's own key, in a Secret of its own namespace: the only Secret that it may read."""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import Final

from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark_operator.api.names import FIELD_MANAGER, LABEL_MANAGED_BY
from statefulspark_operator.clients.kubernetes import Cluster

KEY: Final = "key"
_BYTES: Final = 32


async def operator_key(cluster: Cluster, namespace: str, name: str) -> bytes:
    """Read the key, and make it if there is none. Of several replicas that make it at once, all get that of the first.

    Nothing owns the Secret: it stays when the operator is uninstalled, since jobs that run on are known by it.

    Raises:
        InvalidInputError: The Secret holds no key.
    """
    found = await cluster.get("v1", "Secret", namespace, name)
    if found is None:
        await cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": namespace, "labels": {LABEL_MANAGED_BY: FIELD_MANAGER}},
                "type": "Opaque",
                "immutable": True,
                "data": {KEY: base64.b64encode(secrets.token_bytes(_BYTES)).decode()},
            }
        )
        found = await cluster.get("v1", "Secret", namespace, name)
    if found is None:
        raise ConflictError(f"Secret {namespace}/{name} was deleted immediately after it was created")
    try:
        return base64.b64decode((found.get("data") or {})[KEY], validate=True)
    except (KeyError, binascii.Error) as error:
        message = f"Secret {namespace}/{name} holds no key of the operator ({KEY}). Restore it; or delete it, and all jobs get new Secrets"
        raise InvalidInputError(message) from error
