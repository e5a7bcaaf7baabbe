"""Publication: the single write that completes a checkpoint."""

from __future__ import annotations

from collections.abc import Callable

from statefulspark.checkpoint.catalog import check_presence, stored_sizes
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, encode_metadata
from statefulspark.storage.base import ObjectStore


def publish(
    store: ObjectStore, metadata: CheckpointMetadata, folder: str | None = None, *, before_write: Callable[[], None] = lambda: None
) -> str:
    """Write ``_metadata`` after checking that every file it names is stored.

    Args:
        store: Opened at the folder above the checkpoint's: the job folder, or the savepoint directory.
        metadata: Contents of the checkpoint.
        folder: Name of a savepoint's folder; None for ``chk-<N>``.
        before_write: Called before ``_metadata`` is written. From then on it may appear at any time, even if this function raises.

    Returns:
        The URL of the checkpoint's folder.

    Raises:
        ConflictError: Another driver published a checkpoint of this number.
        CorruptDataError: A file is missing or has another size; nothing was published.
        UnavailableError: Storage did not answer; the checkpoint may exist or not, so publish again with the same metadata.
    """
    name = folder if folder is not None else paths.checkpoint_folder(metadata.checkpoint_id)
    key = paths.metadata_key(name)
    # One listing is cheap, and a checkpoint that names a file which is gone would be found only when it is needed.
    check_presence(metadata, key, stored_sizes(store, name))
    before_write()
    store.put_if_absent(key, encode_metadata(metadata))
    return paths.folder_url(store.url, name)
