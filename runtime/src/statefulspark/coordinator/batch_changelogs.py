"""The changelogs of one batch in storage: whether an attempt processed the batch completely, and the proof for slots without rows.

An attempt is complete if its changelogs cover every key group of every keyed step. Any complete attempt may be the one whose sink committed,
also one that was fenced long ago. Changelogs of different attempts are never mixed: an upgrade may have changed the code in between.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter, read_changelog
from statefulspark.checkpoint.formats.digests import digest_file
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.lineage.lineage import Lineage
from statefulspark.checkpoint.lineage.rewind import is_jump
from statefulspark.checkpoint.transfers import read_again
from statefulspark.errors import CorruptDataError, IncompatibleFormatError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.os_errors import local_disk

_log = structlog.get_logger("statefulspark.coordinator")
WITHOUT_ROWS_EPOCH = 0
"""Epoch in changelogs that the driver writes for slots without rows; slots count theirs from 1."""


@dataclass(frozen=True, slots=True)
class Done:
    """A durable changelog."""

    ref: ChangelogRef
    max_event_time_ms: int | None
    """Greatest event time of its rows."""
    states: tuple[Mapping[str, Any], ...]
    """The states of its step, as its header names them."""


class BatchChangelogs:
    """Reads and writes the changelogs of batches for one attempt.

    Args:
        store: Opened at the job's folder.
        lineage: What the attempt started from.
        max_parallelism: Number of key groups.
    """

    def __init__(self, store: ObjectStore, lineage: Lineage, max_parallelism: int) -> None:
        self._store = store
        self._lineage = lineage
        self._max_parallelism = max_parallelism

    def complete(self, batch: int, uids: Collection[str]) -> list[Done] | None:
        """The changelogs of the newest attempt that processed ``batch`` completely; None if there is none.

        Raises:
            IncompatibleFormatError: A newer release wrote them.
            UnavailableError: Storage did not answer.
        """
        record = self._lineage.records[-1] if self._lineage.records else None
        if record is not None and record.batch == batch and is_jump(record):
            return []
        for attempt in range(self._lineage.attempt, self._lineage.since - 1, -1):
            found = self._of(attempt, batch)
            if all(covers((done.ref for done in found if done.ref.uid == uid), self._max_parallelism) for uid in uids):
                return [done for done in found if done.ref.uid in uids and done.ref.epoch != WITHOUT_ROWS_EPOCH]
        return None

    def of_committed(self, batch: int, uids: Collection[str]) -> list[ChangelogRef]:
        """The changelogs of a batch that a checkpoint contains, for the case that the checkpoint turns out to be damaged.

        Earlier releases left no proof for slots without rows, so without a complete attempt the newest that wrote anything counts.
        """
        found = self.complete(batch, uids)
        if found is None:
            attempts = range(self._lineage.attempt, self._lineage.since - 1, -1)
            found = next((each for attempt in attempts if (each := self._of(attempt, batch))), [])
        return [done.ref for done in found]

    def _of(self, attempt: int, batch: int) -> list[Done]:
        """Changelogs of one attempt that are whole. Of several of one slot the one of its newest incarnation counts."""
        found: dict[tuple[str, int, int], Done] = {}
        for info in self._store.list(paths.changelog_prefix(attempt, batch)):
            try:
                done = read_again(partial(self._read, info.key))
            except IncompatibleFormatError:
                raise
            except CorruptDataError as damage:
                _log.warning("changelog is damaged", problem=str(damage)[:300])
                continue
            key = (done.ref.uid, done.ref.first, done.ref.last)
            if key not in found or found[key].ref.epoch <= done.ref.epoch:
                found[key] = done
        return list(found.values())

    def _read(self, key: str) -> Done:
        with local_disk(), tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "changelog"
            try:
                self._store.get_file(key, path)
            except KeyError:
                raise CorruptDataError("the changelog is missing", path=key) from None
            header, changes = read_changelog(path, name=key)
            deque(changes, maxlen=0)  # proves that the file is whole
            digest = digest_file(path)
        ref = ChangelogRef(
            uid=header.uid,
            slot=header.slot,
            first=header.first_key_group,
            last=header.last_key_group,
            batch=header.batch,
            epoch=header.epoch,
            key=key,
            size_bytes=digest.size_bytes,
            checksum=digest.checksum,
        )
        return Done(ref, header.max_event_time_ms, header.states)

    def write_without_rows(self, batch: int, uid: str, slots: Iterable[tuple[int, KeyGroupRange]]) -> None:
        """Make durable that these slots had no rows in ``batch``: one changelog without changes for neighbours.

        Raises:
            UnavailableError: Storage did not answer.
        """
        for slot, groups in _joined(slots):
            header = ChangelogHeader(
                uid=uid, slot=slot, batch=batch, epoch=WITHOUT_ROWS_EPOCH, first_key_group=groups.first, last_key_group=groups.last
            )
            with local_disk(), tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "changelog"
                ChangelogWriter(path, header).close()
                self._store.put_file(paths.changelog_key(self._lineage.attempt, batch, uid, slot, WITHOUT_ROWS_EPOCH), path)


def states_of(done: Iterable[Done]) -> list[StateInfo]:
    """The states that changelogs name, one for each number."""
    return list({state.state_id: state for each in done for state in map(StateInfo.from_json, each.states)}.values())


def covers(refs: Iterable[ChangelogRef], max_parallelism: int) -> bool:
    """True if the changelogs of one step hold every key group."""
    covered = {group for ref in refs for group in range(ref.first, ref.last + 1)}
    return covered.issuperset(range(max_parallelism))


def _joined(slots: Iterable[tuple[int, KeyGroupRange]]) -> list[tuple[int, KeyGroupRange]]:
    """Neighbouring slots as one range each, under the number of the first."""
    joined: list[tuple[int, KeyGroupRange]] = []
    for slot, groups in sorted(slots):
        if joined and joined[-1][1].last + 1 == groups.first:
            joined[-1] = (joined[-1][0], KeyGroupRange(joined[-1][1].first, groups.last))
        else:
            joined.append((slot, groups))
    return joined
