"""Checkpoints and savepoints in storage, read with the runtime's own format: what is there when no driver answers. The only user of storage."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from statefulspark.checkpoint import paths
from statefulspark.checkpoint.catalog import StoredCheckpoint, checkpoint_ids, newest, open_checkpoint
from statefulspark.config.checkpointing import StorageSpec
from statefulspark.errors import InvalidInputError
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store
from statefulspark.storage.settings import StorageSettings
from statefulspark_operator.api.jobs import SnapshotInfo

_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Keys of an object store, from the Secret that the job names."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None

    def __repr__(self) -> str:
        """Without the keys: reprs end up in logs."""
        return "Keys(...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A snapshot in storage."""

    info: SnapshotInfo
    max_parallelism: int
    savepoint: bool


class SnapshotStorage:
    """Looks into storage; boto3 blocks, so each look has a thread, and there are few at once.

    Every method raises UnavailableError when storage does not answer, InvalidInputError when there is no such place or it may not be
    read, CorruptDataError when what is there is damaged.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def newest(self, folder: str, storage: StorageSpec, keys: Keys | None) -> SnapshotInfo | None:
        """The newest complete checkpoint of a job's folder; None when there is none."""

        def look() -> SnapshotInfo | None:
            found = newest(open_store(folder, _settings(storage, keys)))
            return _found(found).info if found is not None else None

        async with self._places:
            return await asyncio.to_thread(look)

    async def kept(self, folder: str, storage: StorageSpec, keys: Keys | None) -> frozenset[str]:
        """Paths of the checkpoints in a job's folder; those that are being taken may be among them."""

        def look() -> frozenset[str]:
            store = open_store(folder, _settings(storage, keys))
            return frozenset(paths.url_of(store.url, paths.checkpoint_folder(number)) for number in checkpoint_ids(store))

        async with self._places:
            return await asyncio.to_thread(look)

    async def find(self, url: str, storage: StorageSpec, keys: Keys | None) -> Found:
        """The checkpoint or savepoint that ``url`` means."""

        def look() -> Found:
            settings = _settings(storage, keys)

            def opened(place: str) -> ObjectStore:
                return open_store(place, settings)

            return _found(open_checkpoint(url, opened))

        async with self._places:
            return await asyncio.to_thread(look)

    async def dispose(self, url: str, storage: StorageSpec, keys: Keys | None) -> None:
        """Delete a savepoint with all its files. One that is gone already is fine.

        Raises:
            InvalidInputError: It is not a savepoint: a checkpoint's files belong to its job.
        """

        def remove() -> None:
            settings = _settings(storage, keys)

            def opened(place: str) -> ObjectStore:
                return open_store(place, settings)

            try:
                found = open_checkpoint(url, opened)
            except InvalidInputError:
                return
            if found.metadata.kind != "savepoint":
                raise InvalidInputError(f"{url} is a checkpoint, which its job prunes", field="path", remedy="Set disposeOnDelete: false")
            names = [info.key for info in found.store.list(f"{found.folder}/")]
            # First what makes it a savepoint: half of one is never taken for a whole one.
            found.store.delete([found.key])
            found.store.delete(name for name in names if name != found.key)

        async with self._places:
            await asyncio.to_thread(remove)


def _found(stored: StoredCheckpoint) -> Found:
    metadata = stored.metadata
    return Found(
        info=SnapshotInfo(
            id=metadata.checkpoint_id,
            path=stored.url,
            completed_at=datetime.fromtimestamp((metadata.created_ms + metadata.duration_ms) / 1000, UTC),
            size_bytes=sum(file.size_bytes for file in metadata.files()),
            duration_ms=metadata.duration_ms,
            batch=metadata.batch,
        ),
        max_parallelism=metadata.max_parallelism,
        savepoint=metadata.kind == "savepoint",
    )


def _settings(storage: StorageSpec, keys: Keys | None) -> StorageSettings:
    return StorageSettings(
        endpoint=storage.endpoint,
        region=storage.region,
        path_style=storage.path_style,
        access_key_id=keys.access_key_id if keys is not None else None,
        secret_access_key=keys.secret_access_key if keys is not None else None,
        session_token=keys.session_token if keys is not None else None,
        ca_bundle=storage.ca_bundle,
    )
