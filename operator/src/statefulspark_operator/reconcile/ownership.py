"""Ownership checks: children are created and changed only if no other owner has an object of that name.

A forced server-side apply would take over an existing object, and its owner reference would delete it with the job. So each child is read
first. A missing child is created, which fails if another client is faster. Only an object whose controller is the job is applied to, with its
UID, so that the API server rejects the request if the object was replaced in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from statefulspark.errors import ConflictError, InvalidInputError
from statefulspark_operator.api.names import GROUP, JOB_KIND
from statefulspark_operator.builders.identities import JobIdentity
from statefulspark_operator.clients.kubernetes import Cluster, Tree

_MADE_WITH: Final = ("apiVersion", "kind", "spec", "roleRef")
"""Fields that a child is created with, always including its whole ``spec``: an empty selector would briefly select all pods."""


class NameTakenError(InvalidInputError):
    """An object of another owner has the name of one of the job's children."""


def controller_uid(tree: Mapping[str, Any]) -> str | None:
    """The uid of the object's controller; None if it has none."""
    references = tree["metadata"].get("ownerReferences") or ()
    return next((each.get("uid") for each in references if each.get("controller")), None)


def check_owner(tree: Tree, job: JobIdentity) -> None:
    """Check that an object is a child of ``job``.

    Raises:
        NameTakenError: It has another owner; the message names it and the remedy.
        ConflictError: It belongs to a deleted job of the same name and will be garbage-collected.
    """
    if controller_uid(tree) == job.uid:
        return
    kind, name = tree["kind"], tree["metadata"]["name"]
    for each in tree["metadata"].get("ownerReferences") or ():
        earlier = (each.get("kind"), each.get("name")) == (JOB_KIND, job.name) and each.get("uid") != job.uid
        if earlier and str(each.get("apiVersion")).startswith(f"{GROUP}/"):
            raise ConflictError(
                f"{kind} {job.namespace}/{name} belongs to a deleted job of the same name; waiting for its garbage collection"
            )
    raise NameTakenError(
        f"{kind} {name} exists in namespace {job.namespace} and does not belong to this job, which needs that name. Delete or rename"
        " it, or give the job another name"
    )


async def owned_uid(cluster: Cluster, document: Tree, job: JobIdentity) -> str | None:
    """The UID of an existing child; None if there is no object of that name.

    Raises:
        NameTakenError: There is one of another owner.
    """
    metadata = document["metadata"]
    found = await cluster.get(document["apiVersion"], document["kind"], metadata["namespace"], metadata["name"])
    if found is None:
        return None
    check_owner({**found, "kind": document["kind"]}, job)
    return str(found["metadata"]["uid"])


async def apply_owned(cluster: Cluster, document: Tree, job: JobIdentity, uid: str | None) -> Tree:
    """Applies a child.

    Args:
        cluster: Where.
        document: The whole child.
        job: Its owner.
        uid: UID of the existing child, from `owned_uid`.

    Raises:
        NameTakenError: Another owner has created an object of that name in the meantime.
        ConflictError: The child was replaced in the meantime.
    """
    if uid is None:
        await cluster.create(_skeleton(document))
        uid = await owned_uid(cluster, document, job)
        if uid is None:
            raise ConflictError(
                f"{document['kind']} {job.namespace}/{document['metadata']['name']} was deleted immediately after it was created"
            )
    try:
        return await cluster.apply({**document, "metadata": {**document["metadata"], "uid": uid}})
    except InvalidInputError:
        # Older API servers call another uid a change of an immutable field.
        if await owned_uid(cluster, document, job) != uid:
            raise ConflictError(
                f"{document['kind']} {job.namespace}/{document['metadata']['name']} was replaced by another client"
            ) from None
        raise


def _skeleton(document: Tree) -> Tree:
    """The minimal object to create. All other fields are applied afterwards, so that a later apply can remove them."""
    kept: Tree = {name: document[name] for name in _MADE_WITH if name in document}
    return {**kept, "metadata": {name: value for name, value in document["metadata"].items() if name != "annotations"}}


def spoofed(pod: Tree | None, job: Tree) -> bool:
    """True if a pod has the labels of the job's driver and is not its child."""
    return pod is not None and controller_uid(pod) != job["metadata"]["uid"]
