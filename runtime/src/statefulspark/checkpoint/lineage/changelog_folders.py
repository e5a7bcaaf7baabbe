"""Lists which attempts left changelogs, and of which batches, from folder names only."""

from __future__ import annotations

from statefulspark.checkpoint.formats import paths
from statefulspark.storage.base import ObjectStore


def attempts_with_changelogs(store: ObjectStore) -> list[int]:
    """Returns the numbers of the attempts that left changelogs, ascending.

    Args:
        store: Opened at the job folder.
    """
    return sorted(int(name) for name in store.list_folders(paths.CHANGELOG_PREFIX) if name.isdecimal())


def last_batch_with_changelogs(store: ObjectStore, attempt: int) -> int:
    """Returns the highest number of a batch of which ``attempt`` left changelogs, -1 for none."""
    folders = store.list_folders(f"{paths.CHANGELOG_PREFIX}{attempt:08d}/")
    return max((int(name) for name in folders if name.isdecimal()), default=-1)
