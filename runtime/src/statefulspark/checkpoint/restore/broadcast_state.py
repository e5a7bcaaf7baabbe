"""Collects broadcast state from one operator file of a checkpoint and the operator frames of changelogs.

All slots have the same copy, and all that processed a batch have written the same changes. So one file will do, of whatever slot, at any
parallelism, and of each batch one changelog that has changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.changelog import ChangelogHeader
from statefulspark.checkpoint.restore.operator_state import read_operator_file
from statefulspark.errors import CorruptDataError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.evolution.histories import merge_newer
from statefulspark.state.operator.entries import BroadcastChanges, OperatorEntry, is_broadcast


class StoredBroadcastState:
    """Broadcast state by step, as of the last changelog that was added. Changelogs come in batch order.

    Args:
        slot: Number of the slot that restores it. Slots read different files, so that none is read by all.
    """

    def __init__(self, slot: int) -> None:
        self._slot = slot
        self._infos: dict[int, StateInfo] = {}
        self._entries: dict[int, dict[bytes, bytes | None]] = {}
        self._batches: dict[str, int] = {}
        """Of each step, the last batch whose changes are in the entries."""

    def changes(self, uid: str) -> BroadcastChanges:
        """Return the entries of a step by state id and key. None for one that a changelog removed."""
        return {state_id: entries for state_id, entries in self._entries.items() if self._infos[state_id].uid == uid}

    def entries(self, uid: str) -> dict[int, dict[bytes, bytes]]:
        """Return the entries of a step that are there."""
        return {
            state_id: {key: value for key, value in entries.items() if value is not None} for state_id, entries in self.changes(uid).items()
        }

    def states(self, uid: str) -> list[StateInfo]:
        """Return the broadcast states of a step that storage describes, by id."""
        return [info for _, info in sorted(self._infos.items()) if info.uid == uid]

    def left_by(self, uids: Collection[str]) -> list[OperatorEntry]:
        """Return the entries of steps that the job no longer has, as the slot's operator file holds them.

        Args:
            uids: The steps that it has.
        """
        left = sorted(state_id for state_id in self._entries if self._infos[state_id].uid not in uids)
        items = ((state_id, {key: value for key, value in self._entries[state_id].items() if value is not None}) for state_id in left)
        return [OperatorEntry(self._slot, state_id, tuple(sorted(held.items())), whole=False) for state_id, held in items if held]

    def add_checkpoint(self, base: StoredCheckpoint) -> None:
        """Start with a checkpoint.

        Raises:
            CorruptDataError: The file is damaged or missing.
            UnavailableError: Storage did not answer.
        """
        self._add_states(base.metadata.states, where=base.url)
        files = base.metadata.operator_state
        if not self._infos or not files:
            return
        file = files[self._slot % len(files)]
        self._add_entries(read_operator_file(base, file), where=paths.url_of(base.store.url, paths.resolve_reference(base.key, file.path)))

    def add(self, header: ChangelogHeader, entries: Iterable[OperatorEntry], *, where: str) -> None:
        """Add the operator frame of a changelog, whatever slot wrote it, unless the changes of its batch have been added.

        Args:
            header: Of the changelog.
            entries: Of its frame.
            where: Name of the changelog for the error text.

        Raises:
            CorruptDataError: An entry does not belong there.
        """
        self._add_states(header.states, where=where)
        changed = [entry for entry in entries if not entry.whole]
        if changed and self._batches.get(header.uid, -1) < header.batch:
            self._add_entries(changed, where=where)
            self._batches[header.uid] = header.batch

    def _add_states(self, states: Iterable[Mapping[str, Any]], *, where: str) -> None:
        merge_newer(self._infos, filter(is_broadcast, map(StateInfo.from_json, states)), where=where)

    def _add_entries(self, entries: Iterable[OperatorEntry], *, where: str) -> None:
        for entry in entries:
            if entry.whole:
                continue
            if entry.state_id not in self._infos:
                raise CorruptDataError("it has broadcast state of no known state", path=where)
            self._entries.setdefault(entry.state_id, {}).update(entry.items)
