"""Values of Secrets: tokens of drivers and keys of object stores. Kept for a short time, never logged."""

from __future__ import annotations

import base64
import time
from typing import Final

from statefulspark.config.pods import CREDENTIALS, SESSION_TOKEN
from statefulspark.errors import InvalidInputError
from statefulspark_operator.clients.kubernetes import Cluster
from statefulspark_operator.clients.snapshots import Keys

_KEPT_S: Final = 60.0
"""Keys of stores: people rotate them."""
_TOKEN_KEPT_S: Final = 900.0
"""Tokens of drivers are made once; one that its driver refuses is forgotten."""
_KEPT_MAX: Final = 4096


class SecretValues:
    """Reads Secrets, none in every look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: dict[tuple[str, str], tuple[float, dict[str, str]]] = {}

    async def value(self, namespace: str, name: str, key: str) -> str | None:
        """One value of a Secret that does not change; None when there is no such Secret or key."""
        return (await self._data(namespace, name, _TOKEN_KEPT_S)).get(key)

    async def keys(self, namespace: str, name: str | None) -> Keys | None:
        """Keys of an object store; None when the job names no Secret.

        Raises:
            InvalidInputError: The Secret is not there or lacks a key.
        """
        if name is None:
            return None
        data = await self._data(namespace, name, _KEPT_S)
        missing = [key for key in CREDENTIALS if key not in data]
        if missing:
            raise InvalidInputError(
                f"Secret {namespace}/{name} has no {' and no '.join(missing)}",
                field="spec.checkpointing.storage.credentialsSecret",
                remedy=f"Make it with the keys {', '.join(CREDENTIALS)}",
            )
        return Keys(access_key_id=data[CREDENTIALS[0]], secret_access_key=data[CREDENTIALS[1]], session_token=data.get(SESSION_TOKEN))

    def forget(self, namespace: str, name: str) -> None:
        """Read the Secret again next time."""
        self._kept.pop((namespace, name), None)

    async def _data(self, namespace: str, name: str, kept_s: float) -> dict[str, str]:
        now = time.monotonic()
        kept = self._kept.get((namespace, name))
        if kept is not None and kept[0] > now:
            return kept[1]
        tree = await self._cluster.get("v1", "Secret", namespace, name)
        encoded = (tree or {}).get("data") or {}
        data = {key: base64.b64decode(value).decode(errors="replace") for key, value in encoded.items()}
        if tree is not None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            self._kept[namespace, name] = (now + kept_s, data)
        return data
