"""The restore plan that the coordinator sends to a slot: JSON data, the version first.

The plan names objects in storage and contains no code. A slot opens the stores itself, with the settings that it was started with, so
a forged plan can only refer to objects that the job's own credentials can read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import Field, ValidationError

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import Document
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.restore.slot import RestorePlan
from statefulspark.errors import IncompatibleFormatError
from statefulspark.keygroups import MAX_PARALLELISM_LIMIT, KeyGroupRange
from statefulspark.storage.base import ObjectStore

PLAN_VERSION: Final = 1
"""The version that this release writes and reads. Driver and slots are of one release, so there is never another."""
_WHERE: Final = "restore plan"


class _Base(Document):
    url: str = Field(min_length=1, max_length=4096)
    """The folder above the checkpoint's folder."""
    folder: str = Field(min_length=1, max_length=1024)
    metadata: CheckpointMetadata


class _Plan(Document):
    base: _Base | None
    changelogs: tuple[ChangelogRef, ...]
    batch: int = Field(ge=-1)
    first: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    last: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    max_parallelism: int = Field(ge=1, le=MAX_PARALLELISM_LIMIT)
    backend: str = Field(min_length=1, max_length=32)


def plan_to_json(plan: RestorePlan) -> dict[str, Any]:
    """Return plain JSON data; `plan_from_json` reads it."""
    base = plan.base
    body = _Plan(
        base=_Base(url=base.store.url, folder=base.folder, metadata=base.metadata) if base is not None else None,
        changelogs=plan.changelogs,
        batch=plan.batch,
        first=plan.key_groups.first,
        last=plan.key_groups.last,
        max_parallelism=plan.max_parallelism,
        backend=plan.backend,
    )
    return {"version": PLAN_VERSION, **body.model_dump(mode="json")}


def plan_from_json(data: object, *, store: ObjectStore, open_store: Callable[[str], ObjectStore]) -> RestorePlan:
    """Read a plan.

    Args:
        data: Result of `plan_to_json`, as received.
        store: The job's folder.
        open_store: Opens other places in storage.

    Raises:
        IncompatibleFormatError: It is no plan of this release. Nothing was opened.
    """
    if not isinstance(data, Mapping):
        raise IncompatibleFormatError("not a restore plan", path=_WHERE, expected="a JSON object", found=type(data).__name__)
    fields = dict(data)
    version = fields.pop("version", None)
    if type(version) is not int or version != PLAN_VERSION:
        found = f"version {version!r}"[:80]
        raise IncompatibleFormatError("written by another release", path=_WHERE, expected=f"version {PLAN_VERSION}", found=found)
    try:
        plan = _Plan.model_validate(fields)
        key_groups = KeyGroupRange(plan.first, plan.last)
    except ValueError as exc:  # pydantic's own error is one; its text would quote the plan
        where = (
            ", ".join(".".join(map(str, problem["loc"])) for problem in exc.errors()[:5])
            if isinstance(exc, ValidationError)
            else "first, last"
        )
        raise IncompatibleFormatError(f"fields do not match version {version}: {where}", path=_WHERE) from None
    return RestorePlan(
        store=store,
        base=_opened(plan.base, store, open_store) if plan.base is not None else None,
        changelogs=plan.changelogs,
        batch=plan.batch,
        key_groups=key_groups,
        max_parallelism=plan.max_parallelism,
        backend=plan.backend,
    )


def _opened(base: _Base, store: ObjectStore, open_store: Callable[[str], ObjectStore]) -> StoredCheckpoint:
    own = paths.same_folder(base.url, store.url)
    return StoredCheckpoint(store if own else open_store(base.url), base.folder, base.metadata)
