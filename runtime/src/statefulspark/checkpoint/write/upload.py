"""Uploads one slot's store; this is where checkpoints become incremental.

A store's snapshot is a folder of files. RocksDB's table files (``*.sst``) never change and keep their names while the store
lives, so each is uploaded once to ``shared/`` and later checkpoints only reference it. All other files are small and belong to one
checkpoint. A savepoint has a copy of every file in its own folder.

A file is referenced again only if it is part of the *base*: a complete checkpoint that the coordinator retains while the new one is
pending. Files that an unfinished checkpoint uploaded are never referenced again, because retention may delete them at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.digests import FileDigest, digest_bytes, digest_file
from statefulspark.checkpoint.formats.metadata import FileRef, OperatorFile, SlotState
from statefulspark.checkpoint.formats.operator_state import encode_operator_file
from statefulspark.checkpoint.transfers import in_parallel
from statefulspark.checkpoint.write.inline import inline_part
from statefulspark.checkpoint.write.progress import UploadProgress
from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.entries import HEAP_TIMERS_FILE
from statefulspark.state.operator.entries import OperatorEntry
from statefulspark.state.store.heap_store import ENTRIES_FILE
from statefulspark.state.store.own_backend import is_own_backend
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.local.os_errors import deleted_file

OPERATOR_FILE_NAME = "operator"
_SHARED_SUFFIX = ".sst"
_WRITE_AHEAD_LOG_SUFFIX = ".log"
_REMEMBERED_CHECKPOINTS_MAX = 16

_LocalFile = tuple[str, int]
"""Name and size in bytes: identifies an immutable file as long as the store is open."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An immutable file of the open store that is already in ``shared/``."""

    key: str
    """In the job folder."""
    ref: FileRef
    """Its path is relative to a checkpoint's folder."""


def is_shared(name: str, backend: str) -> bool:
    """Return True for a file of a store that never changes and keeps its name, so several checkpoints may name it.

    A backend of one's own may give any name to any file, so all of its files are uploaded for each checkpoint.
    """
    return name.endswith(_SHARED_SUFFIX) and not is_own_backend(backend)


class SlotUploader:
    """Uploads the snapshots of one incarnation of a slot's store; one upload at a time per instance.

    Args:
        store: Opened at the job folder.
        slot: Number of the slot.
        key_groups: Key groups that the store holds.
        backend: Kind of the store.
        threads: Parallel uploads, 1 .. 64.
        inline_max_bytes: Checkpoints have the slot's entries in ``_metadata`` instead of files, if they have at most so many bytes; the
            store's snapshots are files ``entries``. None uploads files.

    Attributes:
        progress: How far the upload is.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        slot: int,
        key_groups: KeyGroupRange,
        backend: str,
        threads: int = 4,
        inline_max_bytes: int | None = None,
    ) -> None:
        if not 1 <= threads <= 64:
            raise InvalidInputError(f"must be between 1 and 64, not {threads}", field="threads")
        self._store = store
        self._slot = slot
        self._key_groups = key_groups
        self._backend = backend
        self._threads = threads
        self._inline_max_bytes = inline_max_bytes
        self._uploaded: dict[int, dict[_LocalFile, StoredFile]] = {}
        self.progress = UploadProgress()

    def seed(self, checkpoint_id: int, files: Iterable[StoredFile]) -> None:
        """Take over the files that a restore put into the store's folder from a checkpoint of this job folder."""
        self._uploaded[checkpoint_id] = {(file.ref.name, file.ref.size_bytes): file for file in files}

    def digests(self) -> dict[str, FileDigest]:
        """Return the digests of the store's immutable files, as far as they are in a checkpoint, by name. Some may be gone from the store."""
        return {file.ref.name: file.ref.digest for files in list(self._uploaded.values()) for file in files.values()}

    def upload(
        self,
        snapshot: Path,
        checkpoint_id: int,
        *,
        nonce: str,
        base_checkpoint_id: int | None,
        step_batches: Mapping[str, int],
        cancellation: Cancellation | None = None,
    ) -> tuple[SlotState, dict[int, int] | None]:
        """Upload what is new in a snapshot, or read it for ``_metadata``.

        Args:
            snapshot: Folder that the store's ``snapshot`` made; only read.
            checkpoint_id: Number of the checkpoint that is being taken.
            nonce: Part of the names of what is uploaded; see `paths.new_nonce`.
            base_checkpoint_id: A complete checkpoint that retention keeps until this one is complete; its files are named
                instead of uploaded. None uploads everything.
            step_batches: Last batch in the store per uid.
            cancellation: Ends the uploads. None if nothing does.

        Returns:
            The slot's part of ``_metadata``, and the bytes of each state by id if its entries are for ``_metadata``; None for files.

        Raises:
            ClosedError: It was canceled.
            UnavailableError: Storage did not answer; nothing refers to what was uploaded.
        """
        if self._inline_max_bytes is not None:
            part = inline_part(snapshot / ENTRIES_FILE, self._inline_max_bytes)
            return self._state([], [], step_batches).model_copy(update={"inline": part.entries}), part.state_bytes
        known = self._uploaded.get(base_checkpoint_id, {}) if base_checkpoint_id is not None else {}
        folder = paths.checkpoint_folder(checkpoint_id)
        private_folder = paths.slot_folder(self._slot, nonce)

        def send(path: Path) -> StoredFile:
            _check(cancellation)
            name, size_bytes = path.name, path.stat().st_size
            shared = is_shared(name, self._backend)
            if shared and (found := known.get((name, size_bytes))) is not None:
                return found
            key = paths.shared_key(checkpoint_id, nonce) if shared else f"{folder}/{private_folder}/{name}"
            digest = digest_file(path)
            self._store.put_file(key, path, cancellation)
            self.progress.add(size_bytes)
            reference = paths.relative_reference(folder, key)
            return StoredFile(key, FileRef(name=name, path=reference, size_bytes=digest.size_bytes, checksum=digest.checksum))

        found = [(path, path.stat().st_size) for path in _store_files(snapshot, self._backend)]
        self.progress.begin(sum(size for path, size in found if not (is_shared(path.name, self._backend) and (path.name, size) in known)))
        files = in_parallel(send, [path for path, _ in found], self._threads)
        shared = [file for file in files if paths.shared_checkpoint_id(file.key) is not None]
        self._remember(checkpoint_id, shared, base_checkpoint_id)
        private = [file.ref for file in files if paths.shared_checkpoint_id(file.key) is None]
        return self._state([file.ref for file in shared], private, step_batches), None

    def upload_savepoint(
        self,
        snapshot: Path,
        target: ObjectStore,
        folder: str,
        *,
        base_checkpoint_id: int | None,
        step_batches: Mapping[str, int],
        common: ObjectStore | None = None,
        cancellation: Cancellation | None = None,
    ) -> tuple[SlotState, None]:
        """Put every file of a snapshot into a savepoint's own folder.

        Given ``common``, files of the base are copied inside the storage, which moves no bytes through this machine; without
        it everything is uploaded from the snapshot.

        Args:
            snapshot: Folder that the store's ``snapshot`` made; only read.
            target: Opened at the folder above the savepoint's.
            folder: Name of the savepoint's folder.
            base_checkpoint_id: As in `upload`.
            step_batches: Last batch in the store per uid.
            common: Opened at a folder (or bucket) that both the job folder and ``target`` lie in; see `paths.common_root`.
            cancellation: As in `upload`.

        Returns:
            The slot's part of ``_metadata``, and None as `upload` does for files: no limit applies to a savepoint.

        Raises:
            ClosedError: It was canceled.
            UnavailableError: Storage did not answer; the savepoint has no ``_metadata`` and is no savepoint.
        """
        known = self._uploaded.get(base_checkpoint_id, {}) if base_checkpoint_id is not None else {}
        private_folder = f"slot-{self._slot}-{uuid4().hex[:8]}"

        def send(path: Path) -> FileRef:
            _check(cancellation)
            reference = f"{private_folder}/{path.name}"
            key = f"{folder}/{reference}"
            size_bytes = path.stat().st_size
            found = known.get((path.name, size_bytes))
            if found is not None and common is not None:
                common.copy(paths.key_below(common.url, self._store.url, found.key), paths.key_below(common.url, target.url, key))
                self.progress.add(size_bytes)
                return found.ref.model_copy(update={"path": reference})
            digest = digest_file(path)
            target.put_file(key, path, cancellation)
            self.progress.add(size_bytes)
            return FileRef(name=path.name, path=reference, size_bytes=digest.size_bytes, checksum=digest.checksum)

        files = _store_files(snapshot, self._backend)
        self.progress.begin(sum(path.stat().st_size for path in files))
        return self._state([], in_parallel(send, files, self._threads), step_batches), None

    def _remember(self, checkpoint_id: int, shared: Iterable[StoredFile], base_checkpoint_id: int | None) -> None:
        self.seed(checkpoint_id, shared)
        # Later checkpoints never have an older base than this one had.
        oldest = base_checkpoint_id if base_checkpoint_id is not None else -1
        kept = sorted(number for number in self._uploaded if number >= oldest)[-_REMEMBERED_CHECKPOINTS_MAX:]
        self._uploaded = {number: self._uploaded[number] for number in kept}

    def _state(self, shared: Iterable[FileRef], private: Iterable[FileRef], step_batches: Mapping[str, int]) -> SlotState:
        files = tuple(private)
        return SlotState(
            slot=self._slot,
            first=self._key_groups.first,
            last=self._key_groups.last,
            backend=self._backend,
            shared=tuple(shared),
            private=files,
            operator_batches=dict(step_batches),
            heap_timers=self._backend == "rocksdb" and any(file.name == HEAP_TIMERS_FILE for file in files),
        )


def upload_operator_state(target: ObjectStore, folder: str, slot: int, entries: Sequence[OperatorEntry], nonce: str) -> OperatorFile | None:
    """Put the operator state of a slot into the folder of a checkpoint or savepoint.

    Args:
        target: Opened at the folder above the checkpoint's.
        folder: Name of the checkpoint's folder.
        slot: Number of the slot.
        entries: All operator state of the slot.
        nonce: As in `SlotUploader.upload`.

    Returns:
        The slot's entry in ``_metadata``; None if there is no operator state.

    Raises:
        UnavailableError: Storage did not answer; nothing refers to what was uploaded.
    """
    if not entries:
        return None
    data = encode_operator_file(entries)
    digest = digest_bytes(data)
    path = f"{paths.operator_state_folder(slot, nonce)}/{OPERATOR_FILE_NAME}"
    target.put(f"{folder}/{path}", data)
    return OperatorFile(slot=slot, name=OPERATOR_FILE_NAME, path=path, size_bytes=digest.size_bytes, checksum=digest.checksum)


def _check(cancellation: Cancellation | None) -> None:
    if cancellation is not None:
        cancellation.check()


def _store_files(snapshot: Path, backend: str) -> list[Path]:
    """Files of a snapshot, large ones first so that threads end together; an empty write-ahead log is left out.

    Raises:
        UnavailableError: Another program has deleted them all: a checkpoint without them would restore empty state.
    """
    files: list[Path] = []
    for path in snapshot.iterdir():
        if not path.is_file():
            remedy = "Write files only, without folders" if is_own_backend(backend) else "This is a bug; please report it"
            raise InvalidInputError(f"the snapshot holds a folder: {path.name}", field="snapshot", remedy=remedy)
        if not is_own_backend(backend) and path.name.endswith(_WRITE_AHEAD_LOG_SUFFIX) and path.stat().st_size == 0:
            continue
        files.append(path)
    if not files and not is_own_backend(backend):
        raise deleted_file(snapshot)
    return sorted(files, key=lambda path: (-path.stat().st_size, path.name))
