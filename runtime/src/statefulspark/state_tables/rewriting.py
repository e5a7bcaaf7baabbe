"""Writes a savepoint with changes, from an existing one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from statefulspark.checkpoint.catalog import OpenStore, StoredCheckpoint
from statefulspark.checkpoint.inspect.reader import state_infos
from statefulspark.errors import InvalidInputError
from statefulspark.state_tables.canonical import write_canonical
from statefulspark.state_tables.changed_metadata import changed_metadata, known_uids, removed_ids
from statefulspark.state_tables.changes import Changes, State
from statefulspark.state_tables.contents import Contents, StoredContents
from statefulspark.state_tables.regrouping import RegroupedContents, regrouped_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSavepoint:
    """A savepoint that was written.

    Attributes:
        url: The savepoint, which is canonical.
        states: uid and name of its states, sorted.
        entries: Number of stored entries of keyed state, timers and raw keyed state.
    """

    url: str
    states: tuple[State, ...]
    entries: int


def rewrite(
    origin: StoredCheckpoint,
    target_url: str,
    changes: Changes,
    *,
    max_parallelism: int | None = None,
    open_store: OpenStore,
    progress: Callable[[str], None] = lambda _: None,
) -> WrittenSavepoint:
    """Write a canonical savepoint with the contents of a checkpoint or savepoint, after some changes.

    Args:
        origin: A checkpoint or savepoint. It is only read.
        target_url: Folder in which the savepoint is made, under a new name.
        changes: Of names. There may be none if the number of key groups changes.
        max_parallelism: Number of key groups of the new savepoint; None for that of the origin.
        open_store: Opens the store of a URL.
        progress: Called with the name of each part before it is written.

    Raises:
        InvalidInputError: A change cannot be made. Nothing was written.
        CorruptDataError: A file or an entry of the origin is damaged; the message names it. Nothing was published.
        UnavailableError: Storage did not answer, or the local disk is full; nothing was published.
    """
    metadata = origin.metadata
    regroups = max_parallelism not in (None, metadata.max_parallelism)
    if not (changes or regroups):
        raise InvalidInputError("there are no changes", field="changes", remedy="Name what to change, or use convert")
    changes.check(known_uids(metadata), state_infos(origin))
    stored = StoredContents(origin, removed_ids(metadata, changes))
    changed = changed_metadata(metadata, changes)
    with ExitStack() as stack:
        contents: Contents = stored
        if max_parallelism is not None and regroups:
            changed = regrouped_metadata(changed, max_parallelism)
            contents = stack.enter_context(RegroupedContents(origin, stored, max_parallelism))
        renamed = replace(origin, metadata=changed)
        written = write_canonical(renamed, target_url, open_store=open_store, contents=contents, progress=progress)
    states = sorted((info.uid, info.name) for info in state_infos(renamed))
    return WrittenSavepoint(url=written.url, states=tuple(states), entries=written.entries)
