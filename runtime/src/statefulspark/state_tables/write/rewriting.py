"""Writes a savepoint with changes, from an existing one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from statefulspark.checkpoint.catalog import OpenStore, StoredCheckpoint
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.checkpoint.inspect.reader import state_infos
from statefulspark.errors import InvalidInputError
from statefulspark.state_tables.bootstrap.bootstrapping import BootstrapContents, NewState, NoContents, new_metadata, next_state_id, planned
from statefulspark.state_tables.canonical.conversion import write_canonical
from statefulspark.state_tables.write.changed_metadata import changed_metadata, known_uids, removed_ids
from statefulspark.state_tables.write.changes import Changes, State, check_max_parallelism
from statefulspark.state_tables.write.contents import Contents, StoredContents
from statefulspark.state_tables.write.regrouping import RegroupedContents, regrouped_metadata
from statefulspark.state_tables.write.sorted_entries import sorted_entries


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
    added: Sequence[NewState] = (),
    open_store: OpenStore,
    progress: Callable[[str], None] = lambda _: None,
) -> WrittenSavepoint:
    """Write a canonical savepoint with the contents of a checkpoint or savepoint, after some changes.

    Args:
        origin: A checkpoint or savepoint. It is only read.
        target_url: Folder in which the savepoint is made, under a new name.
        changes: Of names. There may be none if something else changes.
        max_parallelism: Number of key groups of the new savepoint; None for that of the origin.
        added: States with their rows.
        open_store: Opens the store of a URL.
        progress: Called with the name of each part before it is written.

    Raises:
        InvalidInputError: A change cannot be made. Nothing was written.
        CorruptDataError: A file or an entry of the origin is damaged; the message names it. Nothing was published.
        UnavailableError: Storage did not answer, or the local disk is full. Nothing was published, unless the text names a savepoint.
    """
    metadata = origin.metadata
    regroups = max_parallelism not in (None, metadata.max_parallelism)
    if not (changes or regroups or added):
        raise InvalidInputError("there are no changes", field="changes", remedy="Name what to change, or use convert")
    changes.check(known_uids(metadata), state_infos(origin))
    stored = StoredContents(origin, removed_ids(metadata, changes))
    changed = changed_metadata(metadata, changes)
    with ExitStack() as stack:
        contents: Contents = stored
        if max_parallelism is not None and regroups:
            changed = regrouped_metadata(changed, max_parallelism)
            contents = stack.enter_context(RegroupedContents(origin, stored, max_parallelism))
        if added:
            changed, contents = _with_states(origin, changed, contents, added, stack, progress)
        return _written(replace(origin, metadata=changed), target_url, contents, open_store, progress)


def write_new(
    name: str,
    max_parallelism: int,
    target_url: str,
    added: Sequence[NewState],
    *,
    open_store: OpenStore,
    progress: Callable[[str], None] = lambda _: None,
) -> WrittenSavepoint:
    """Write a canonical savepoint of no job with the given states; arguments and errors as of `rewrite`."""
    check_max_parallelism(max_parallelism)
    nothing = StoredCheckpoint(open_store(target_url), name, new_metadata(name, max_parallelism))
    with ExitStack() as stack:
        metadata, contents = _with_states(nothing, nothing.metadata, NoContents(), added, stack, progress)
        return _written(replace(nothing, metadata=metadata), target_url, contents, open_store, progress)


def _with_states(
    origin: StoredCheckpoint,
    metadata: CheckpointMetadata,
    contents: Contents,
    added: Sequence[NewState],
    stack: ExitStack,
    progress: Callable[[str], None],
) -> tuple[CheckpointMetadata, Contents]:
    """Return metadata and contents with the added states. Every row is encoded and sorted before anything is written."""
    entries = stack.enter_context(sorted_entries())
    lists = set()
    for state in added:
        given = state.given()
        # Ids are never used again: those of removed states are the origin's.
        metadata, rows = planned(metadata, state, next_state_id(origin.metadata, metadata), given.schema)
        progress(f"the rows of state {rows.info.name!r} of uid {rows.info.uid!r} to the local disk")
        given.add_to(entries, rows)
        if rows.info.kind == "list":
            lists.add(rows.info.state_id)
    return metadata, BootstrapContents(contents, entries, frozenset(lists))


def _written(
    made: StoredCheckpoint, target_url: str, contents: Contents, open_store: OpenStore, progress: Callable[[str], None]
) -> WrittenSavepoint:
    written = write_canonical(made, target_url, open_store=open_store, contents=contents, progress=progress)
    states = sorted((info.uid, info.name) for info in state_infos(made))
    return WrittenSavepoint(url=written.url, states=tuple(states), entries=written.entries)
