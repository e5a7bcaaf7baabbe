"""The restore plan as the coordinator sends it to a slot.

The plan names objects in storage and contains no code. A slot opens the stores itself, with the settings that it was started with, so
a forged plan can only refer to objects that the job's own credentials can read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from pydantic import Field, model_validator

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import Document
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.restore.slot import RestorePlan
from statefulspark.keygroups import MAX_PARALLELISM_LIMIT, KeyGroupRange
from statefulspark.storage.base import ObjectStore


class BaseCheckpoint(Document):
    """The checkpoint or savepoint that a slot starts from."""

    url: str = Field(min_length=1, max_length=4096)
    """The folder above the checkpoint's folder."""
    folder: str = Field(min_length=1, max_length=1024)
    metadata: CheckpointMetadata


class SlotRestore(Document):
    """Restore plan of one slot. `RestorePlan` is the same with opened stores."""

    base: BaseCheckpoint | None
    changelogs: tuple[ChangelogRef, ...]
    batch: int = Field(ge=-1)
    first: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    """First key group of the slot."""
    last: int = Field(ge=0, lt=MAX_PARALLELISM_LIMIT)
    """Last key group of the slot, included."""
    max_parallelism: int = Field(ge=1, le=MAX_PARALLELISM_LIMIT)
    backend: str = Field(min_length=1, max_length=512)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.last < self.first:
            raise ValueError("last must not be less than first")
        return self

    @classmethod
    def of(cls, plan: RestorePlan) -> Self:
        """Returns the plan without its opened stores."""
        base = plan.base
        return cls(
            base=BaseCheckpoint(url=base.store.url, folder=base.folder, metadata=base.metadata) if base is not None else None,
            changelogs=plan.changelogs,
            batch=plan.batch,
            first=plan.key_groups.first,
            last=plan.key_groups.last,
            max_parallelism=plan.max_parallelism,
            backend=plan.backend,
        )

    def plan(self, store: ObjectStore, open_store: Callable[[str], ObjectStore]) -> RestorePlan:
        """Returns the plan with opened stores.

        Args:
            store: The job's folder.
            open_store: Opens another place in storage; called only if the base is not in the job's folder.
        """
        return RestorePlan(
            store=store,
            base=_opened(self.base, store, open_store) if self.base is not None else None,
            changelogs=self.changelogs,
            batch=self.batch,
            key_groups=KeyGroupRange(self.first, self.last),
            max_parallelism=self.max_parallelism,
            backend=self.backend,
        )


def _opened(base: BaseCheckpoint, store: ObjectStore, open_store: Callable[[str], ObjectStore]) -> StoredCheckpoint:
    own = paths.same_folder(base.url, store.url)
    return StoredCheckpoint(store if own else open_store(base.url), base.folder, base.metadata)
