"""Collects the lists of operator state from a checkpoint's operator files and the operator frames of changelogs.

Changelogs of the first batch after a redistribution contain the whole operator state of every slot (``all``), so earlier redistributions are never
repeated. Within a batch, what the driver wrote for slots without rows (epoch 0) counts less than what a slot wrote itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.changelog import Changelog, ChangelogHeader, read_changelog
from statefulspark.checkpoint.formats.metadata import OperatorFile
from statefulspark.checkpoint.formats.operator_state import decode_operator_file
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.restore.changelog_objects import by_object, download_changelogs
from statefulspark.checkpoint.transfers import download_verified, in_parallel
from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.evolution.histories import merge_newer
from statefulspark.state.operator.entries import OperatorEntry, is_broadcast, is_operator_state
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.local.os_errors import local_disk

_THREADS: Final = 8
_OBJECTS_AT_ONCE: Final = 32
"""Each may hold all operator state of a slot."""
_IN_CHECKPOINT: Final = (-1, False)

_Rank = tuple[int, bool]
"""Batch, and True for what a slot wrote itself: of two entries the one of the higher rank counts."""


@dataclass(slots=True)
class _StepLists:
    """Lists of one step by slot and state id, each with its rank."""

    parallelism: int
    lists: dict[tuple[int, int], tuple[_Rank, tuple[bytes, ...]]] = field(default_factory=dict)

    def put(self, slot: int, state_id: int, rank: _Rank, elements: tuple[bytes, ...]) -> None:
        known = self.lists.get((slot, state_id))
        if known is None or known[0] <= rank:
            self.lists[slot, state_id] = rank, elements

    def forget_before(self, batch: int) -> None:
        """Drop what is older than a batch whose changelogs have everything."""
        self.lists = {key: entry for key, entry in self.lists.items() if entry[0][0] >= batch}


class StoredOperatorState:
    """Operator state by step and slot, as of the last changelog that was added. Changelogs come in batch order.

    Args:
        slot: Number of the slot whose state is wanted; None for all.
        first: Batch before which nothing counts.
    """

    def __init__(self, *, slot: int | None = None, first: int = 0) -> None:
        self._slot = slot
        self._first = first
        self._steps: dict[str, _StepLists] = {}
        self._infos: dict[int, StateInfo] = {}
        self._uids: set[str] = set()

    def lists(self, uid: str) -> dict[int, dict[int, tuple[bytes, ...]]]:
        """Return the lists of a step by slot and state id."""
        found: dict[int, dict[int, tuple[bytes, ...]]] = {}
        if uid in self._steps:
            for (slot, state_id), (_, elements) in self._steps[uid].lists.items():
                found.setdefault(slot, {})[state_id] = elements
        return found

    def parallelism(self, uid: str) -> int:
        """Return the number of slots that the lists of a step are of; 1 if it has none."""
        return self._steps[uid].parallelism if uid in self._steps else 1

    def states(self, uid: str) -> list[StateInfo]:
        """Return the operator states of a step that storage describes, by id."""
        return [info for _, info in sorted(self._infos.items()) if info.uid == uid]

    def has_state_of(self, uid: str) -> bool:
        """Return True if storage has any state of a step, keyed state and timers included."""
        return uid in self._uids

    def add_states(self, states: Iterable[Mapping[str, Any]], *, where: str) -> None:
        """Learn descriptions of states.

        Args:
            states: ``StateInfo`` in JSON.
            where: Object that they were read from, for the error text.

        Raises:
            CorruptDataError: They contradict what is known.
        """
        for info in map(StateInfo.from_json, states):
            self._uids.add(info.uid)
            if is_operator_state(info) and not is_broadcast(info):
                merge_newer(self._infos, (info,), where=where)

    def add_checkpoint(self, base: StoredCheckpoint) -> None:
        """Start with the operator files of a checkpoint, unless it is from before ``first``.

        Raises:
            CorruptDataError: A file is damaged or missing.
            UnavailableError: Storage did not answer.
        """
        self.add_states(base.metadata.states, where=base.url)
        if base.metadata.batch < self._first and self._slot is not None:
            return
        files = [file for file in base.metadata.operator_state if self._slot in (None, file.slot)]
        for file, entries in zip(files, in_parallel(lambda each: read_operator_file(base, each), files, _THREADS), strict=True):
            where = paths.url_of(base.store.url, paths.resolve_reference(base.key, file.path))
            for entry in filter(_is_list, entries):
                if entry.slot != file.slot or entry.state_id not in self._infos:
                    raise CorruptDataError("it has operator state of another slot or of no known state", path=where)
                step = self._steps.setdefault(self._infos[entry.state_id].uid, _StepLists(base.metadata.parallelism))
                step.put(entry.slot, entry.state_id, _IN_CHECKPOINT, entry.elements(where=where))

    def add(self, header: ChangelogHeader, entries: Iterable[OperatorEntry], *, where: str) -> None:
        """Add the operator frame of a changelog.

        Args:
            header: Of the changelog.
            entries: Of its frame.
            where: Name of the changelog for the error text.

        Raises:
            CorruptDataError: An entry does not belong there.
        """
        self.add_states(header.states, where=where)
        if header.operator_state is None or header.parallelism is None or header.batch < self._first:
            return
        step = self._steps.setdefault(header.uid, _StepLists(header.parallelism))
        if header.operator_state == "all":
            step.forget_before(header.batch)
            step.parallelism = header.parallelism
        for entry in filter(_is_list, entries):
            if entry.slot >= header.parallelism:
                raise CorruptDataError(f"it has operator state of slot {entry.slot} of {header.parallelism}", path=where)
            if entry.state_id not in self._infos:
                raise CorruptDataError("it has operator state of no known state", path=where)
            if self._slot in (None, entry.slot):
                step.put(entry.slot, entry.state_id, (header.batch, header.epoch > 0), entry.elements(where=where))


def _is_list(entry: OperatorEntry) -> bool:
    """False for broadcast state, which `StoredBroadcastState` collects."""
    return entry.whole


def read_operator_file(base: StoredCheckpoint, file: OperatorFile) -> tuple[OperatorEntry, ...]:
    """Download, verify and read an operator file.

    Raises:
        CorruptDataError: It is damaged or missing.
        UnavailableError: Storage did not answer.
    """
    key = paths.resolve_reference(base.key, file.path)
    with local_disk(), tempfile.TemporaryDirectory(prefix="statefulspark-operator-") as folder:
        path = Path(folder) / "operator"
        download_verified(base.store, key, path, file.digest)
        return decode_operator_file(path.read_bytes(), path=paths.url_of(base.store.url, key))


def read_stored(
    base: StoredCheckpoint | None, store: ObjectStore, changelogs: Iterable[ChangelogRef], uids: Collection[str]
) -> StoredOperatorState:
    """Read the operator state of all slots, with several downloads at a time.

    Args:
        base: Checkpoint to start from; None for empty state.
        store: Opened at the job folder.
        changelogs: Committed ones after the base, in batch order.
        uids: Steps whose operator state is wanted; changelogs of others are not read.

    Raises:
        CorruptDataError: An object is damaged or missing.
        UnavailableError: Storage did not answer.
    """
    stored = StoredOperatorState()
    if base is not None:
        stored.add_checkpoint(base)
    after = base.metadata.batch if base is not None else -1
    refs = [ref for ref in changelogs if ref.uid in uids and ref.batch > after]

    def read(of_object: Sequence[ChangelogRef]) -> list[Changelog]:
        with local_disk(), tempfile.TemporaryDirectory(prefix="statefulspark-operator-") as folder:
            files = download_changelogs(store, of_object, Path(folder) / "changelog")
            return [read_changelog(path, name=ref.key) for ref, path in zip(of_object, files, strict=True)]

    objects = by_object(refs)
    for start in range(0, len(objects), _OBJECTS_AT_ONCE):
        piece = objects[start : start + _OBJECTS_AT_ONCE]
        for of_object, changelogs_read in zip(piece, in_parallel(read, piece, _THREADS), strict=True):
            for ref, changelog in zip(of_object, changelogs_read, strict=True):
                stored.add(changelog.header, changelog.operator_state, where=ref.key)
    return stored
