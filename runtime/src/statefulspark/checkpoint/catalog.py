"""Finds checkpoints and savepoints below a URL.

The URL may be a checkpoint directory with several jobs, one job's folder, a ``chk-N`` folder, a savepoint folder, or the
``_metadata`` file in it. A checkpoint is opened through its parent folder, because it references files in ``shared/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.digests import digest_bytes
from statefulspark.checkpoint.formats.metadata import METADATA_NAME, CheckpointKind, CheckpointMetadata, decode_metadata
from statefulspark.checkpoint.transfers import read_again
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.storage.base import ObjectStore

OpenStore = Callable[[str], ObjectStore]
"""Opens the object store of a root URL."""

_SHARED_PREFIXES = (paths.SHARED_PREFIX, paths.SPARK_STATE_PREFIX)
"""Folder of the files that several checkpoints reference."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A loaded checkpoint and its location."""

    store: ObjectStore
    """Opened at the folder above the checkpoint's folder."""
    folder: str
    """Name of the checkpoint's folder, e.g. ``chk-7``."""
    metadata: CheckpointMetadata

    @property
    def key(self) -> str:
        """Key of ``_metadata``."""
        return paths.metadata_key(self.folder)

    @property
    def url(self) -> str:
        """URL of the checkpoint's folder."""
        return paths.folder_url(self.store.url, self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSummary:
    """One line of a list of checkpoints."""

    url: str
    """URL of the checkpoint's folder."""
    status: Literal["complete", "damaged", "unfinished"]
    """Unfinished: it has no ``_metadata``, because it is pending or was abandoned."""
    problem: str | None = None
    """Description of the damage."""
    kind: CheckpointKind | None = None
    format: Literal["canonical", "native"] | None = None
    """Native: in the format of the state backend that took it."""
    job_id: str | None = None
    job_name: str | None = None
    checkpoint_id: int | None = None
    attempt: int | None = None
    batch: int | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    created_ms: int | None = None
    duration_ms: int | None = None
    size_bytes: int = 0
    """All files it needs, and the entries within ``_metadata``."""
    incremental_bytes: int = 0
    """The files that were uploaded for it, and the entries within ``_metadata``."""


def load(store: ObjectStore, key: str) -> CheckpointMetadata:
    """Read and verify a ``_metadata``.

    Args:
        store: Opened at the folder above the checkpoint's folder.
        key: Key of ``_metadata``, e.g. ``chk-7/_metadata``.

    Raises:
        InvalidInputError: There is none.
        CorruptDataError: It is damaged, or (IncompatibleFormatError) of an unknown version.
        UnavailableError: Storage did not answer.
    """
    path = paths.url_of(store.url, key)
    try:
        return read_again(lambda: decode_metadata(store.get(key), path=path))
    except KeyError:
        raise InvalidInputError(
            f"{path} does not exist", field="checkpoint", remedy="Run `statefulspark checkpoints DIR` to list the checkpoints that exist."
        ) from None


def open_checkpoint(url: str, open_store: OpenStore) -> StoredCheckpoint:
    """Load the one checkpoint that ``url`` means; of a job's folder, the newest that is complete.

    Raises:
        InvalidInputError: There is no checkpoint, or the folder holds several jobs.
        CorruptDataError: The checkpoint is damaged.
        UnavailableError: Storage did not answer.
    """
    if (above := _open_above(url, open_store)) is not None:
        store, folder = above
        return StoredCheckpoint(store, folder, load(store, paths.metadata_key(folder)))
    root = open_store(url)
    if not is_job_folder(root):
        raise InvalidInputError(
            f"{root.url} is neither a checkpoint, a savepoint nor a job's folder",
            field="path",
            remedy="Run `statefulspark checkpoints DIR` to list checkpoints, and pass one of their paths.",
        )
    for summary in reversed(_list_folder(root)):
        if summary.status == "complete":
            _, name = paths.folder_of(summary.url)
            return StoredCheckpoint(root, name, load(root, paths.metadata_key(name)))
    raise InvalidInputError(f"{root.url} holds no complete checkpoint", field="path", remedy="Pass a savepoint or another job's folder.")


def list_checkpoints(url: str, open_store: OpenStore) -> list[CheckpointSummary]:
    """List the checkpoints at ``url``, in order of job and checkpoint number, savepoints last.

    Presence and size of every file are checked against ``_metadata``, not their bytes (`inspect.verify` does that).

    Raises:
        InvalidInputError: There is nothing.
        UnavailableError: Storage did not answer.
    """
    if (above := _open_above(url, open_store)) is not None:
        store, folder = above
        return [_summarize(store, folder, stored_sizes(store, folder))]
    root = open_store(url)
    found = _list_folder(root)
    for name in root.list_folders(""):
        if not name.startswith(("chk-", "savepoint-")):
            found += _list_folder(open_store(paths.folder_url(root.url, name)))
    if not found:
        raise InvalidInputError(
            f"{root.url} holds no checkpoints", field="path", remedy="Pass a checkpoint directory, a job's folder in it, or a savepoint."
        )
    return found


def newest(store: ObjectStore) -> StoredCheckpoint | None:
    """Return a job folder's newest checkpoint whose files are all there, None when there is none.

    Raises:
        UnavailableError: Storage did not answer.
    """
    for checkpoint_id in reversed(checkpoint_ids(store)):
        folder = paths.checkpoint_folder(checkpoint_id)
        try:
            metadata = load(store, paths.metadata_key(folder))
            check_presence(metadata, paths.metadata_key(folder), stored_sizes(store, folder))
        except (CorruptDataError, InvalidInputError):
            continue
        return StoredCheckpoint(store, folder, metadata)
    return None


def damaged_checkpoints(store: ObjectStore) -> list[str]:
    """URLs of a job folder's checkpoints that could not be restored."""
    folders = [paths.checkpoint_folder(number) for number in checkpoint_ids(store)]
    return [paths.url_of(store.url, folder) for folder in folders if store.head(paths.damaged_key(folder)) is not None]


def check_location(checkpoint: StoredCheckpoint) -> None:
    """Check the bundle of Spark's checkpoint location, which the driver reads before any slot reads a file.

    Raises:
        CorruptDataError: It is missing or damaged.
    """
    file = checkpoint.metadata.spark_location
    if file is None:
        return
    key = paths.resolve_reference(checkpoint.key, file.path)
    path = paths.url_of(checkpoint.store.url, key)

    def read() -> None:
        try:
            data = checkpoint.store.get(key)
        except KeyError:
            raise CorruptDataError("a file of the checkpoint is missing", path=path) from None
        if digest_bytes(data, file.digest.algorithm) != file.digest:
            raise CorruptDataError("a file of the checkpoint is damaged", path=path, expected=file.checksum)

    read_again(read)


def checkpoint_before(url: str, open_store: OpenStore) -> str | None:
    """URL of the newest complete checkpoint before ``url`` in the same job folder, None when there is none or ``url`` is a savepoint."""
    parent, name = paths.folder_of(open_store(url.rstrip("/").removesuffix(f"/{METADATA_NAME}")).url)
    number = paths.checkpoint_id_of(name)
    if number is None:
        return None
    store = open_store(parent)
    damaged = damaged_checkpoints(store)
    for summary in reversed(_list_folder(store)):
        if (
            summary.status == "complete"
            and summary.kind == "checkpoint"
            and (summary.checkpoint_id or 0) < number
            and summary.url not in damaged
        ):
            return summary.url
    return None


def checkpoint_ids(store: ObjectStore) -> list[int]:
    """Numbers of all checkpoint folders of a job folder, finished or not, ascending; the next checkpoint takes the last plus one."""
    return sorted(number for name in store.list_folders("") if (number := paths.checkpoint_id_of(name)) is not None)


def check_presence(metadata: CheckpointMetadata, key: str, sizes: Mapping[str, int]) -> None:
    """Check that every file of a checkpoint is stored with its size.

    Args:
        metadata: The checkpoint.
        key: Key of its ``_metadata``.
        sizes: Size in bytes by key, of everything that `stored_sizes` finds.

    Raises:
        CorruptDataError: A file is missing or has another size.
    """
    for file in metadata.files():
        target = paths.resolve_reference(key, file.path)
        found = sizes.get(target)
        if found is None:
            raise CorruptDataError("a file of the checkpoint is missing", path=target)
        if found != file.size_bytes:
            raise CorruptDataError(
                "a file of the checkpoint has the wrong size", path=target, expected=f"{file.size_bytes} bytes", found=f"{found} bytes"
            )


def stored_sizes(store: ObjectStore, folder: str) -> dict[str, int]:
    """Size in bytes by key of everything in a checkpoint's folder and of what checkpoints share beside it."""
    shared = _SHARED_PREFIXES if paths.checkpoint_id_of(folder) is not None else ()
    return _sizes(store, (f"{folder}/", *shared))


def is_job_folder(store: ObjectStore) -> bool:
    """True if the store is opened at the folder of one job."""
    return store.head(paths.JOB_KEY) is not None or bool(checkpoint_ids(store))


def _list_folder(store: ObjectStore) -> list[CheckpointSummary]:
    ids = checkpoint_ids(store)
    shared = _sizes(store, _SHARED_PREFIXES) if ids else {}
    folders = [paths.checkpoint_folder(checkpoint_id) for checkpoint_id in ids]
    folders += [name for name in store.list_folders("") if name.startswith("savepoint-")]
    return [_summarize(store, folder, shared | _sizes(store, (f"{folder}/",))) for folder in folders]


def _summarize(store: ObjectStore, folder: str, sizes: Mapping[str, int]) -> CheckpointSummary:
    key = paths.metadata_key(folder)
    url = paths.folder_url(store.url, folder)
    if key not in sizes:
        return CheckpointSummary(url=url, status="unfinished", checkpoint_id=paths.checkpoint_id_of(folder))
    try:
        metadata = load(store, key)
    except (CorruptDataError, InvalidInputError) as problem:
        return CheckpointSummary(url=url, status="damaged", problem=str(problem), checkpoint_id=paths.checkpoint_id_of(folder))
    problem_text: str | None = None
    try:
        check_presence(metadata, key, sizes)
    except (CorruptDataError, InvalidInputError) as problem:
        problem_text = str(problem)
    files = file_sizes(key, metadata)
    return CheckpointSummary(
        url=url,
        status="damaged" if problem_text else "complete",
        problem=problem_text,
        kind=metadata.kind,
        format="canonical" if metadata.is_canonical else "native",
        job_id=metadata.job_id,
        job_name=metadata.job_name,
        checkpoint_id=metadata.checkpoint_id,
        attempt=metadata.attempt,
        batch=metadata.batch,
        parallelism=metadata.parallelism,
        max_parallelism=metadata.max_parallelism,
        created_ms=metadata.created_ms,
        duration_ms=metadata.duration_ms,
        size_bytes=sum(files.values()) + metadata.inline_bytes,
        incremental_bytes=incremental_bytes(files, metadata),
    )


def file_sizes(key: str, metadata: CheckpointMetadata) -> dict[str, int]:
    """Size of each file that the metadata at ``key`` refers to, by key."""
    return {paths.resolve_reference(key, file.path): file.size_bytes for file in metadata.files()}


def incremental_bytes(files: Mapping[str, int], metadata: CheckpointMetadata) -> int:
    """Bytes of those ``files`` of a checkpoint that were uploaded for it, and not for one before it, and of its inline entries."""
    return sum(size for file, size in files.items() if _is_increment(file, metadata)) + metadata.inline_bytes


def _is_increment(key: str, metadata: CheckpointMetadata) -> bool:
    if (position := paths.spark_state_position(key)) is not None:
        return position[1] == metadata.batch  # earlier packs were stored with earlier batches
    return paths.shared_checkpoint_id(key) in (None, metadata.checkpoint_id)


def _sizes(store: ObjectStore, prefixes: tuple[str, ...]) -> dict[str, int]:
    return {info.key: info.size_bytes for prefix in prefixes for info in store.list(prefix)}


def _open_above(url: str, open_store: OpenStore) -> tuple[ObjectStore, str] | None:
    """The folder above a checkpoint's folder and its name; None when ``url`` is no checkpoint's folder or ``_metadata``."""
    parent, name = paths.folder_of(open_store(url.rstrip("/").removesuffix(f"/{METADATA_NAME}")).url)
    if parent.endswith(("/", ":")):
        # A bucket has no parent; a checkpoint directly in the root of a file system belongs to no job.
        return None
    store = open_store(parent)
    return (store, name) if store.head(paths.metadata_key(name)) is not None else None
