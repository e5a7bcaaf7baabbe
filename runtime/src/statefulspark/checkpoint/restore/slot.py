"""Restores one slot from any checkpoint, for any parallelism, to the state after the last committed batch.

A key begins with its key group, so the key groups of a slot are a contiguous range of the store. The old slot's store that
holds most of the new slot's key groups is opened and clipped to the new range; missing key groups are copied from the other old
slots' stores. Of a canonical savepoint, all are copied into an empty store. Then the changelogs of later batches are applied in order, restricted to the slot's key groups.

Size and checksum of every file are verified before it is opened.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.digests import check_digest, digest_bytes
from statefulspark.checkpoint.formats.metadata import METADATA_NAME, SlotState
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.restore.merged_states import MergedStates
from statefulspark.checkpoint.restore.progress import RestoreProgress
from statefulspark.checkpoint.restore.replay import TakesOperatorState, needed_changelogs, replay
from statefulspark.checkpoint.transfers import download_verified, in_parallel
from statefulspark.checkpoint.write.upload import StoredFile
from statefulspark.errors import CorruptDataError, NotRestorableError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import key_group_range_bounds
from statefulspark.state.store.base import KeyValueStore, StoredEntries
from statefulspark.state.store.heap_store import ENTRIES_FILE
from statefulspark.state.store.open_store import open_snapshot
from statefulspark.state.store.own_backend import is_own_backend
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.os_errors import deleted_file

OpenState = Callable[[Path], KeyValueStore]
"""Opens a slot's store of the job's kind in a folder, which may be missing (an empty store) or hold a snapshot's files."""

_SAME_FILES = {"filesystem": "memory"}
"""Kinds of stores that read each other's files, by the kind whose files they are."""


class RestoresOperatorState(TakesOperatorState, Protocol):
    """Collects one kind of operator state from a checkpoint and the changelogs after it."""

    def add_checkpoint(self, base: StoredCheckpoint) -> None:
        """Start with a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """Everything that one slot's state is restored from. The coordinator creates it, the slot executes it; `plan` serializes it."""

    store: ObjectStore
    """Opened at the job folder, which contains the changelogs."""
    base: StoredCheckpoint | None
    """Checkpoint or savepoint to start from; None for empty state."""
    changelogs: tuple[ChangelogRef, ...]
    """Changelogs after the base in batch order, of all slots; those of other key groups are skipped."""
    batch: int
    """The last committed batch, which the state is restored to; -1 before the first."""
    key_groups: KeyGroupRange
    """Key groups of the slot."""
    max_parallelism: int
    """Key groups of the job."""
    backend: str
    """Kind of the job's stores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredSlot:
    """A slot's store, ready for the batch after ``batch``."""

    store: KeyValueStore
    base_checkpoint_id: int | None
    """Checkpoint that ``uploaded`` belongs to; None when nothing is uploaded yet."""
    uploaded: tuple[StoredFile, ...]
    """Files in the store's folder that are already in ``shared/``; for `SlotUploader.seed`."""
    batch: int
    """Last batch in the store."""
    step_batches: Mapping[str, int]
    """Last batch in the store per uid that ever had state: ``batch`` for each."""
    states: tuple[dict[str, Any], ...]
    """``StateInfo`` in JSON of every state known so far."""
    downloaded_bytes: int
    copied_entries: int
    """Entries copied from other old slots' stores."""
    replayed_changes: int
    """Changes applied from changelogs."""


def restore_slot(
    plan: RestorePlan,
    directory: Path,
    open_state: OpenState,
    *,
    threads: int = 8,
    operator_state: Sequence[RestoresOperatorState] = (),
    progress: RestoreProgress | None = None,
) -> RestoredSlot:
    """Build the store of a slot in ``directory``.

    Args:
        plan: The state to restore.
        directory: New or empty folder on the local disk; the store stays in ``directory/store``.
        open_state: Opens a store of the kind ``plan.backend``.
        threads: Parallel downloads.
        operator_state: Take up the operator state of the slot, as far as the coordinator has not sent it.
        progress: Counts what is downloaded.

    Raises:
        NotRestorableError: Key groups, store kind or states do not fit the job.
        CorruptDataError: A file is damaged or missing; its name is in the text. Restore from an older checkpoint.
        UnavailableError: Storage did not answer.
    """
    merged = MergedStates()
    progress = progress or RestoreProgress()
    after = plan.base.metadata.replay_after if plan.base is not None else -1
    changelogs = needed_changelogs((ref for ref in plan.changelogs if after < ref.batch <= plan.batch), plan.key_groups)
    sources = _sources(plan, plan.base) if plan.base is not None else []
    progress.begin(sum(file.size_bytes for source in sources for file in source.slot.files) + sum(ref.size_bytes for ref in changelogs))
    directory.mkdir(parents=True, exist_ok=True)
    build = (
        _from_base(plan, plan.base, sources, directory, open_state, merged=merged, downloads=_Downloads(threads, progress))
        if plan.base is not None
        else _Built(open_state(directory / "store"))
    )
    try:
        if plan.base is not None:
            for each in operator_state:
                each.add_checkpoint(plan.base)
        replayed = replay(
            plan.store,
            changelogs,
            build.store,
            plan.key_groups,
            folder=directory / "changelogs",
            merged=merged,
            threads=threads,
            operator_state=operator_state,
            progress=progress,
        )
    except BaseException:
        build.store.close()
        raise
    return RestoredSlot(
        store=build.store,
        base_checkpoint_id=plan.base.metadata.checkpoint_id if plan.base is not None and build.uploaded else None,
        uploaded=build.uploaded,
        batch=plan.batch,
        step_batches=dict.fromkeys(merged.uids(), plan.batch),
        states=merged.states,
        downloaded_bytes=build.downloaded_bytes + replayed.downloaded_bytes,
        copied_entries=build.copied_entries,
        replayed_changes=replayed.changes,
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """An old slot, and the key groups it shares with the new one."""

    slot: SlotState
    shared: KeyGroupRange


@dataclass(frozen=True, slots=True)
class _Built:
    """The store as of the base."""

    store: KeyValueStore
    uploaded: tuple[StoredFile, ...] = ()
    downloaded_bytes: int = 0
    copied_entries: int = 0


@dataclass(frozen=True, slots=True)
class _Downloads:
    """How files are downloaded."""

    threads: int
    progress: RestoreProgress

    def of(self, base: StoredCheckpoint, slot: SlotState, folder: Path) -> int:
        """See `download_slot`."""
        return download_slot(base, slot, folder, self.threads, self.progress)


def _from_base(
    plan: RestorePlan,
    base: StoredCheckpoint,
    sources: list[_Source],
    directory: Path,
    open_state: OpenState,
    *,
    merged: MergedStates,
    downloads: _Downloads,
) -> _Built:
    merged.add(base.metadata.states, where=base.url)
    # No store opens canonical entries: all are copied into an empty one.
    opened, others = (None, sources) if base.metadata.is_canonical else (sources[0].slot, sources[1:])
    downloaded = 0 if opened is None else downloads.of(base, opened, directory / "store")
    copied = 0
    store = open_state(directory / "store")
    try:
        if opened is not None:
            _cut(store, opened.key_groups, plan.key_groups)
        for source in others:
            with _temporary(directory / f"old-{source.slot.slot}") as folder:
                downloaded += downloads.of(base, source.slot, folder)
                copied += _copy(open_state, source, folder, store)
    except BaseException:
        store.close()
        raise
    uploaded = () if opened is None else _already_uploaded(plan, base, opened)
    return _Built(store, uploaded, downloaded, copied)


def _sources(plan: RestorePlan, base: StoredCheckpoint) -> list[_Source]:
    """Old slots that hold some of the new slot's key groups; the one to open comes first: it holds most."""
    metadata = base.metadata
    if metadata.max_parallelism != plan.max_parallelism:
        raise NotRestorableError(
            f"{base.url} has {metadata.max_parallelism} key groups, but the job has {plan.max_parallelism}",
            field="maxParallelism",
            remedy=f"Set maxParallelism to {metadata.max_parallelism}, or write a savepoint with other key groups by `statefulspark rewrite --max-parallelism`.",
        )
    found = [(slot, slot.key_groups.intersect(plan.key_groups)) for slot in metadata.slots]
    sources = [_Source(slot, shared) for slot, shared in found if shared is not None]
    for slot in (source.slot for source in sources):
        if not slot.is_canonical and _SAME_FILES.get(slot.backend, slot.backend) != _SAME_FILES.get(plan.backend, plan.backend):
            raise NotRestorableError(
                f"{base.url} was written by the state backend {slot.backend!r}, but the job uses {plan.backend!r}",
                field="state.backend",
                remedy=f"Set the state backend to {slot.backend!r}, or start from a canonical savepoint: statefulspark convert {base.url} DIR.",
            )
    # Of equally good ones the smaller store: less to download and to cut off.
    return sorted(sources, key=lambda source: (-source.shared.count, source.slot.key_groups.count, source.slot.slot))


def download_slot(base: StoredCheckpoint, slot: SlotState, folder: Path, threads: int, progress: RestoreProgress | None = None) -> int:
    """Put the verified files of an old slot's store into a new folder, and inline entries as a file; returns the bytes of the files.

    ``progress`` counts them.

    Raises:
        CorruptDataError: A file is damaged or missing.
        UnavailableError: Storage did not answer, or another program has deleted files in the folder.
    """
    check_has_files(base, slot)
    if slot.files or slot.inline is not None:
        folder.mkdir(parents=True)
    write_inline(base, slot, folder)

    def fetch(index: int) -> int:
        file = slot.files[index]
        download_verified(base.store, paths.resolve_reference(base.key, file.path), folder / file.name, file.digest)
        if progress is not None:
            progress.add(file.size_bytes)
        return file.size_bytes

    downloaded_bytes = sum(in_parallel(fetch, range(len(slot.files)), threads))
    check_downloaded(slot, folder)
    return downloaded_bytes


def check_has_files(base: StoredCheckpoint, slot: SlotState) -> None:
    """Check that a slot's part of a checkpoint is there at all: a store that is opened without files is empty, and so would be the state.

    Raises:
        CorruptDataError: It has neither files nor inline entries. A backend of one's own may have none for an empty store.
    """
    if not slot.files and slot.inline is None and not is_own_backend(slot.backend):
        raise CorruptDataError(f"slot {slot.slot} has no files", path=f"{base.url}/{METADATA_NAME}")


def check_downloaded(slot: SlotState, folder: Path) -> None:
    """Check that the files of an old slot are in the folder, right before a store is opened there, which else may begin empty.

    Raises:
        UnavailableError: Another program has deleted one.
    """
    names = [file.name for file in slot.files] if slot.inline is None else [ENTRIES_FILE]
    for name in names:
        if not (folder / name).exists():
            raise deleted_file(folder / name)


def write_inline(base: StoredCheckpoint, slot: SlotState, folder: Path) -> None:
    """Write a slot's inline entries, if it has some, to the file by which a store opens them.

    Raises:
        CorruptDataError: They are damaged.
    """
    if slot.inline is not None:
        check_digest(digest_bytes(slot.inline.data), slot.inline.digest, path=f"{base.url}/{METADATA_NAME}")
        (folder / ENTRIES_FILE).write_bytes(slot.inline.data)


def _cut(store: KeyValueStore, held: KeyGroupRange, wanted: KeyGroupRange) -> None:
    """Delete the key groups that are held and not wanted."""
    if held.first < wanted.first:
        store.delete_range(*key_group_range_bounds(held.first, wanted.first - 1))
    if held.last > wanted.last:
        store.delete_range(*key_group_range_bounds(wanted.last + 1, held.last))


def _copy(open_state: OpenState, source: _Source, folder: Path, store: KeyValueStore) -> int:
    copied = 0

    def counted(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        nonlocal copied
        for entry in entries:
            copied += 1
            yield entry

    old: StoredEntries = open_snapshot(source.slot.backend, folder) if source.slot.is_canonical else open_state(folder)
    try:
        store.write(counted(old.scan(*key_group_range_bounds(source.shared.first, source.shared.last))))
    finally:
        old.close()
    return copied


def _already_uploaded(plan: RestorePlan, base: StoredCheckpoint, slot: SlotState) -> tuple[StoredFile, ...]:
    """Files of the opened store that the next checkpoint may reference; only those of this job's folder, which its retention manages."""
    if not paths.same_folder(base.store.url, plan.store.url):
        return ()
    keys = ((file, paths.resolve_reference(base.key, file.path)) for file in slot.shared)
    return tuple(StoredFile(key, file.model_copy(update={"path": f"../{key}"})) for file, key in keys)


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
