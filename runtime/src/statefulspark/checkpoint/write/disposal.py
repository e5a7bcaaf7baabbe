"""Deletes a savepoint from storage. Savepoints only: a checkpoint's files belong to its job, whose retention deletes them."""

from __future__ import annotations

from statefulspark.checkpoint.catalog import OpenStore, open_checkpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.errors import InvalidInputError


def dispose_savepoint(url: str, open_store: OpenStore) -> bool:
    """Delete a savepoint with all its files, and nothing else that is in its folder; False when there is none, which is fine.

    A crash in between leaves files that nothing refers to: ``_metadata``, which makes them a savepoint, goes first.

    Raises:
        InvalidInputError: It is a checkpoint, or behind a symbolic link.
        CorruptDataError: Its ``_metadata`` is damaged.
        UnavailableError: Storage did not answer.
    """
    try:
        found = open_checkpoint(url, open_store)
    except InvalidInputError:
        return False
    if found.metadata.kind != "savepoint":
        raise InvalidInputError(
            f"{url} is a checkpoint, which is deleted by its job's retention", field="path", remedy="Pass the path of a savepoint."
        )
    names = paths.own_files((info.key for info in found.store.list(f"{found.folder}/")), found.folder)
    if not names:
        raise InvalidInputError(
            f"{url} cannot be deleted: a symbolic link leads there", field="path", remedy="Pass the path of the folder itself."
        )
    found.store.delete([found.key])
    found.store.delete(name for name in names if name != found.key)
    return True
