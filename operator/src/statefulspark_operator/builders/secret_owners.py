"""The owner of a Secret: a ConfigMap of the same name, which goes with the job and takes the Secret along. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from statefulspark_operator.api.names import LABEL_OWNS
from statefulspark_operator.builders.certificates import renewal_due
from statefulspark_operator.builders.identities import JobIdentity

_KEY_ID: Final = "keyId"
_NOT_AFTER: Final = "notAfter"


def secret_owner(job: JobIdentity, name: str) -> dict[str, Any]:
    """The owner of a Secret that is not made yet."""
    metadata = job.metadata(name)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata | {"labels": metadata["labels"] | {LABEL_OWNS: "secret"}}}


def owned(secret: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    """The same Secret, as a child of ``owner`` alone: with the job as another one it would stay when ``owner`` goes."""
    metadata = owner["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}
    owners = [{**reference, "controller": True, "blockOwnerDeletion": False}]
    return {**secret, "metadata": {**secret["metadata"], "ownerReferences": owners}}


def made(key_id: str, not_after: datetime | None) -> dict[str, str]:
    """Annotations of the owner of a Secret: the key it was made with, and the end of the certificate in it."""
    return {_KEY_ID: key_id} | ({_NOT_AFTER: not_after.isoformat()} if not_after is not None else {})


def says(owner: Mapping[str, Any], wanted: Mapping[str, str], now: datetime) -> bool:
    """True if a Secret was made with the key of ``wanted``, and is not to be renewed."""
    found = owner.get("data") or {}
    return found.get(_KEY_ID) == wanted[_KEY_ID] and not (_NOT_AFTER in wanted and renewal_due(found.get(_NOT_AFTER), now))
