"""Replays changelogs on top of a checkpoint, in batch order."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from statefulspark.checkpoint.formats.changelog import ChangelogHeader, read_changelog
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.restore.changelog_objects import by_object, download_changelogs, size_of_objects
from statefulspark.checkpoint.restore.merged_states import MergedStates
from statefulspark.checkpoint.restore.progress import RestoreProgress
from statefulspark.errors import CorruptDataError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import key_group_range_bounds
from statefulspark.state.operator.entries import OperatorEntry
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.storage.base import ObjectStore


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of a replay."""

    changes: int
    downloaded_bytes: int


class TakesOperatorState(Protocol):
    """Collects one kind of operator state from changelogs."""

    def add(self, header: ChangelogHeader, entries: Iterable[OperatorEntry], *, where: str) -> None:
        """Take up the operator frame of the changelog ``where``."""


def replay(
    source: ObjectStore,
    changelogs: Iterable[ChangelogRef],
    store: KeyValueStore,
    key_groups: KeyGroupRange,
    *,
    folder: Path,
    merged: MergedStates,
    threads: int,
    operator_state: Sequence[TakesOperatorState] = (),
    progress: RestoreProgress | None = None,
) -> Replayed:
    """Apply the changes of the given key groups.

    Args:
        source: Opened at the job folder.
        changelogs: In batch order; those without the store's key groups are skipped.
        store: Holds the state before the first of them.
        key_groups: Key groups of the store; changes of others are left out.
        folder: New local folder for downloads; removed at the end.
        merged: Takes up the states that the changelogs name.
        threads: Parallel downloads; at most twice as many objects wait on the local disk.
        operator_state: Take up the operator state of the changelogs.
        progress: Counts what is downloaded.

    Raises:
        CorruptDataError: A changelog is damaged or missing.
        UnavailableError: Storage did not answer.
    """
    needed = needed_changelogs(changelogs, key_groups)
    objects = by_object(needed)
    changes = 0
    folder.mkdir(parents=True)

    def fetch(position: int) -> list[Path]:
        refs = objects[position]
        files = download_changelogs(source, refs, folder / f"{position:09d}")
        if progress is not None:
            progress.add(refs[0].size_bytes)
        return files

    def counted(entries: Iterable[Change]) -> Iterator[Change]:
        nonlocal changes
        for entry in entries:
            changes += 1
            yield entry

    try:
        for refs, files in zip(objects, _ahead(fetch, len(objects), threads), strict=True):
            for ref, path in zip(refs, files, strict=True):
                store.write(counted(_changes(path, ref, key_groups, merged, operator_state)))
                path.unlink()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Replayed(changes, size_of_objects(needed))


def needed_changelogs(changelogs: Iterable[ChangelogRef], key_groups: KeyGroupRange) -> list[ChangelogRef]:
    """Return the changelogs with changes of the given key groups."""
    return [ref for ref in changelogs if ref.key_groups.intersect(key_groups) is not None]


def _changes(
    path: Path, ref: ChangelogRef, key_groups: KeyGroupRange, merged: MergedStates, operator_state: Sequence[TakesOperatorState]
) -> Iterator[Change]:
    header, changes, entries = read_changelog(path, name=ref.key)
    found = (header.uid, header.slot, header.batch, header.epoch, header.first_key_group, header.last_key_group)
    if found != (ref.uid, ref.slot, ref.batch, ref.epoch, ref.first, ref.last):
        raise CorruptDataError("the changelog is not the one that was acknowledged", path=ref.key)
    merged.add(header.states, where=ref.key)
    for each in operator_state:
        each.add(header, entries, where=ref.key)
    if key_groups.first <= ref.first and ref.last <= key_groups.last:
        return changes
    first, end = key_group_range_bounds(key_groups.first, key_groups.last)
    return (change for change in changes if first <= change[0] < end)


def _ahead(fetch: Callable[[int], list[Path]], count: int, threads: int) -> Iterator[list[Path]]:
    """Results of ``fetch(0 .. count - 1)`` in order, a bounded number of them made ahead in threads."""
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="changelogs") as pool:
        waiting: deque[Future[list[Path]]] = deque()
        submitted = 0
        try:
            for _ in range(count):
                while submitted < count and len(waiting) < 2 * threads:
                    waiting.append(pool.submit(fetch, submitted))
                    submitted += 1
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
