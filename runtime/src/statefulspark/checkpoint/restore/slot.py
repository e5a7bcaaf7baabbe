"""Restores one slot from any checkpoint, for any parallelism, to the state after the last committed batch.

The store is built from those of old slots (`sources`). Then the changelogs of later batches are applied in order, restricted to the slot's key groups.

Size and checksum of every file are verified before it is opened; of files that a slot of this machine has just left in good order, it has noted them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import SlotState
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.restore.changelog_objects import size_of_objects
from statefulspark.checkpoint.restore.local_files import LocalFiles
from statefulspark.checkpoint.restore.merged_states import MergedStates
from statefulspark.checkpoint.restore.progress import RestoreProgress
from statefulspark.checkpoint.restore.replay import TakesOperatorState, needed_changelogs, replay
from statefulspark.checkpoint.restore.slot_files import SlotBytes, fetch_slot
from statefulspark.checkpoint.restore.sources import Source, Sources, sources_of
from statefulspark.checkpoint.write.upload import StoredFile
from statefulspark.errors import NotRestorableError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import key_group_range_bounds
from statefulspark.state.store.base import KeyValueStore, StoredEntries
from statefulspark.state.store.open_store import add_range, open_snapshot
from statefulspark.storage.base import ObjectStore

OpenState = Callable[[Path], KeyValueStore]
"""Opens a slot's store of the job's kind in a folder, which may be missing (an empty store) or hold a snapshot's files."""

STORE_FOLDER: Final = "store"
"""Of the slot's store, in the folder of `restore_slot`."""

_SAME_FILES = {"filesystem": "memory"}
"""Kinds of stores that read each other's files, by the kind whose files they are."""
_NOTHING = Sources(None, ())


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
    local_bytes: int
    """Of files that were still on this machine."""
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
    local: LocalFiles | None = None,
) -> RestoredSlot:
    """Build the store of a slot in ``directory``.

    Args:
        plan: The state to restore.
        directory: New or empty folder on the local disk; the store stays in ``directory/store``.
        open_state: Opens a store of the kind ``plan.backend``.
        threads: Parallel downloads.
        operator_state: Take up the operator state of the slot, as far as the coordinator has not sent it.
        progress: Counts what is downloaded or linked.
        local: Files on this machine, which are linked instead of downloaded. None downloads all.

    Raises:
        NotRestorableError: Key groups, store kind or states do not fit the job.
        CorruptDataError: A file is damaged or missing; its name is in the text. Restore from an older checkpoint.
        UnavailableError: Storage did not answer.
    """
    merged = MergedStates()
    progress = progress or RestoreProgress()
    after = plan.base.metadata.replay_after if plan.base is not None else -1
    changelogs = needed_changelogs((ref for ref in plan.changelogs if after < ref.batch <= plan.batch), plan.key_groups)
    sources = _sources(plan, plan.base) if plan.base is not None else _NOTHING
    progress.begin(sum(file.size_bytes for source in sources.all for file in source.slot.files) + size_of_objects(changelogs))
    directory.mkdir(parents=True, exist_ok=True)
    build = (
        _from_base(plan, plan.base, sources, directory, open_state, merged=merged, files=_Files(threads, progress, local))
        if plan.base is not None
        else _Built(open_state(directory / STORE_FOLDER))
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
        downloaded_bytes=build.fetched.downloaded + replayed.downloaded_bytes,
        local_bytes=build.fetched.local,
        copied_entries=build.copied_entries,
        replayed_changes=replayed.changes,
    )


@dataclass(frozen=True, slots=True)
class _Built:
    """The store as of the base."""

    store: KeyValueStore
    uploaded: tuple[StoredFile, ...] = ()
    fetched: SlotBytes = SlotBytes()  # noqa: RUF009  frozen
    copied_entries: int = 0


@dataclass(frozen=True, slots=True)
class _Files:
    """Fetches files."""

    threads: int
    progress: RestoreProgress
    local: LocalFiles | None

    def of(self, base: StoredCheckpoint, slot: SlotState, folder: Path) -> SlotBytes:
        """See `fetch_slot`."""
        return fetch_slot(base, slot, folder, self.threads, progress=self.progress, local=self.local)


def _from_base(
    plan: RestorePlan,
    base: StoredCheckpoint,
    sources: Sources,
    directory: Path,
    open_state: OpenState,
    *,
    merged: MergedStates,
    files: _Files,
) -> _Built:
    merged.add(base.metadata.states, where=base.url)
    opened = sources.opened.slot if sources.opened is not None else None
    fetched = SlotBytes() if opened is None else files.of(base, opened, directory / STORE_FOLDER)
    copied = 0
    store = open_state(directory / STORE_FOLDER)
    try:
        if opened is not None:
            _cut(store, opened.key_groups, plan.key_groups)
        for source in sources.copied:
            with _temporary(directory / f"old-{source.slot.slot}") as folder:
                fetched += files.of(base, source.slot, folder)
                copied += _copy(open_state, source, folder, store)
    except BaseException:
        store.close()
        raise
    uploaded = () if opened is None else _already_uploaded(plan, base, opened)
    return _Built(store, uploaded, fetched, copied)


def _sources(plan: RestorePlan, base: StoredCheckpoint) -> Sources:
    """Old slots that hold some of the new slot's key groups, once it is clear that they fit the job."""
    metadata = base.metadata
    if metadata.max_parallelism != plan.max_parallelism:
        raise NotRestorableError(
            f"{base.url} has {metadata.max_parallelism} key groups, but the job has {plan.max_parallelism}",
            field="maxParallelism",
            remedy=f"Set maxParallelism to {metadata.max_parallelism}, or write a savepoint with other key groups by `statefulspark rewrite --max-parallelism`.",
        )
    sources = sources_of(metadata, plan.key_groups)
    for slot in (source.slot for source in sources.all):
        if not slot.is_canonical and _SAME_FILES.get(slot.backend, slot.backend) != _SAME_FILES.get(plan.backend, plan.backend):
            raise NotRestorableError(
                f"{base.url} was written by the state backend {slot.backend!r}, but the job uses {plan.backend!r}",
                field="state.backend",
                remedy=f"Set the state backend to {slot.backend!r}, or start from a canonical savepoint: statefulspark convert {base.url} DIR.",
            )
    return sources


def _cut(store: KeyValueStore, held: KeyGroupRange, wanted: KeyGroupRange) -> None:
    """Delete the key groups that are held and not wanted."""
    if held.first < wanted.first:
        store.delete_range(*key_group_range_bounds(held.first, wanted.first - 1))
    if held.last > wanted.last:
        store.delete_range(*key_group_range_bounds(wanted.last + 1, held.last))


def _copy(open_state: OpenState, source: Source, folder: Path, store: KeyValueStore) -> int:
    copied = 0

    def counted(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        nonlocal copied
        for entry in entries:
            copied += 1
            yield entry

    old: StoredEntries = open_snapshot(source.slot.backend, folder) if source.slot.is_canonical else open_state(folder)
    try:
        add_range(store, counted(old.scan(*key_group_range_bounds(source.shared.first, source.shared.last))))
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
