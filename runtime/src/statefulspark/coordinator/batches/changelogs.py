"""The changelogs of one batch in storage: whether an attempt processed the batch completely, and the proof for slots without rows.

An attempt is complete if its changelogs cover every key group of every keyed step that its own pipeline had, which its record of the batch
names: before it can commit its sink, it has all of them. Any complete attempt may be the one whose sink committed, also one that was fenced
long ago. Changelogs of different attempts are never mixed: an upgrade may have changed the code in between, or added and dropped steps.
Nor are those of slots that got the rows of a broadcast stream in different orders: of each step, those with one digest of these rows must be complete.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter, read_changelog
from statefulspark.checkpoint.formats.changelog_group import decode_group, is_group
from statefulspark.checkpoint.formats.digests import FileDigest, digest_bytes
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.lineage.lineage import Lineage, read_record
from statefulspark.checkpoint.lineage.rewind import is_jump
from statefulspark.checkpoint.transfers import download, read_again
from statefulspark.errors import CorruptDataError, IncompatibleFormatError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.process.rows.value_times import NO_VALUES, InputValueTimes
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.evolution.histories import merge_newer
from statefulspark.state.operator.entries import OperatorEntry
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.local.os_errors import local_disk

_log = structlog.get_logger("statefulspark.coordinator")
WITHOUT_ROWS_EPOCH = 0
"""Epoch in changelogs that the driver writes for slots without rows; slots count theirs from 1."""


@dataclass(frozen=True, slots=True)
class Done:
    """A durable changelog."""

    ref: ChangelogRef
    event_times_ms: tuple[int | None, int | None]
    """Greatest event time of its rows, per input."""
    states: tuple[Mapping[str, Any], ...]
    """The states of its step, as its header names them."""
    operator_state: bool
    """True if it has operator state."""
    broadcast: tuple[str, int] | None = None
    """Digest of the batch's broadcast rows, and number of the query in which they came; None if there were none."""
    event_times_by_value: InputValueTimes = NO_VALUES
    """As ``event_times_ms``, by value of ``watermark_by``."""

    @property
    def order(self) -> str | None:
        """The digest: slots with another one have another broadcast state."""
        return self.broadcast[0] if self.broadcast is not None else None

    @property
    def age(self) -> tuple[int, int]:
        """Grows from run to run of one slot."""
        return self.ref.epoch, self.broadcast[1] if self.broadcast is not None else 0


@dataclass(frozen=True, slots=True)
class WithoutRows:
    """Operator state of slots that had no rows in a first batch."""

    entries: list[OperatorEntry]
    parallelism: int
    states: list[StateInfo]
    """All states of the step, because a changelog that names fewer would hide those of an earlier one."""


@dataclass(frozen=True, slots=True)
class Complete:
    """A batch as one attempt processed it completely."""

    steps: frozenset[str]
    """Uids of that attempt's keyed steps. The present pipeline may lack some of them, and may have others."""
    done: tuple[Done, ...]
    """Its changelogs, without those that only prove that slots had no rows."""

    @property
    def refs(self) -> list[ChangelogRef]:
        """References to its changelogs."""
        return [each.ref for each in self.done]

    @property
    def states(self) -> list[StateInfo]:
        """The states that its changelogs name, one for each number."""
        found: dict[int, StateInfo] = {}
        for each in self.done:
            merge_newer(found, map(StateInfo.from_json, each.states), where=each.ref.key)
        return list(found.values())


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

    def complete(self, batch: int) -> Complete | None:
        """Changelogs of the newest attempt that completed ``batch``, or None.

        None too if a later attempt with other steps has processed a part, or one without changelogs: its sink, which read the batch, may be the one that committed it; and if
        all slots have processed broadcast rows in two orders and nothing tells which one counts.

        Raises:
            IncompatibleFormatError: A newer release wrote them.
            UnavailableError: Storage did not answer.
        """
        record = self._lineage.records[-1] if self._lineage.records else None
        if record is not None and record.batch == batch and is_jump(record):
            return Complete(frozenset(), ())
        later: set[frozenset[str] | None] = set()
        silent: list[int] = []
        for attempt in range(self._lineage.attempt, self._lineage.since - 1, -1):
            found = self._of(attempt, batch)
            if not found:
                silent.append(attempt)
                continue
            steps = self._steps(attempt, batch, found)
            chosen = {uid: self._in_one_order(uid, found) for uid in sorted(steps or ())}
            if steps and all(chosen.values()):
                processed = (each for of_step in chosen.values() for each in of_step)
                done = tuple(each for each in processed if each.ref.epoch != WITHOUT_ROWS_EPOCH or each.operator_state)
                return Complete(steps, done) if later <= {steps} and not any(self._left_none(each, batch) for each in silent) else None
            later.add(steps)
        return None

    def _left_none(self, attempt: int, batch: int) -> bool:
        """True if an attempt began ``batch`` without changelogs, so that nothing says how far it came."""
        key = paths.batch_key(attempt, batch)
        return self._store.head(key) is not None and read_record(self._store, key).without_changelogs is not None

    def _in_one_order(self, uid: str, found: Iterable[Done]) -> list[Done]:
        """The changelogs of a step that cover all key groups and are of one order of broadcast rows; empty if there are none, or no newest."""
        orders = [each for each in _by_order(uid, found) if covers((done.ref for done in each), self._max_parallelism)]
        if len(orders) < 2:
            return orders[0] if orders else []
        before, newest = sorted(orders, key=_query)[-2:]
        # In one query only one of them was acknowledged, and storage does not say which; nor does it know when there were no such rows.
        return newest if 0 <= _query(before) < _query(newest) else []

    def _steps(self, attempt: int, batch: int, found: Iterable[Done]) -> frozenset[str] | None:
        """Uids of the steps with which an attempt ran ``batch``; None if its record, which would prove them, cannot be read.

        Earlier releases did not name steps that were added while the batch was uncommitted, so those with changelogs count too.
        """
        try:
            record = read_record(self._store, paths.batch_key(attempt, batch))
        except IncompatibleFormatError:
            raise
        except CorruptDataError as damage:
            _log.warning("batch record is missing or damaged, so the changelogs of its attempt are not used", problem=str(damage)[:300])
            return None
        return frozenset(record.watermarks) | {done.ref.uid for done in found}

    def of_committed(self, batch: int) -> list[ChangelogRef]:
        """The changelogs of a batch that a checkpoint contains, for the case that the checkpoint turns out to be damaged.

        Earlier releases left no proof for slots without rows, so without a complete attempt the newest that wrote anything counts: of each
        step, the newest order of broadcast rows, rather a complete one.
        """
        found = self.complete(batch)
        if found is not None:
            return found.refs
        attempts = range(self._lineage.attempt, self._lineage.since - 1, -1)
        written = next((each for attempt in attempts if (each := self._of(attempt, batch))), [])

        def preference(order: list[Done]) -> tuple[bool, int]:
            return covers((done.ref for done in order), self._max_parallelism), _query(order)

        newest = [max(_by_order(uid, written), key=preference) for uid in sorted({done.ref.uid for done in written})]
        return [done.ref for order in newest for done in order]

    def _of(self, attempt: int, batch: int) -> list[Done]:
        """Changelogs of one attempt that are whole. Of several of one slot, in one order of broadcast rows, the one of its newest incarnation counts."""
        found: dict[tuple[str, str | None, int, int], Done] = {}
        for info in self._store.list(paths.changelog_prefix(attempt, batch)):
            try:
                read = read_again(partial(self._read, info.key))
            except IncompatibleFormatError:
                raise
            except CorruptDataError as damage:
                _log.warning("changelog is damaged", problem=str(damage)[:300])
                continue
            for done in read:
                key = (done.ref.uid, done.order, done.ref.first, done.ref.last)
                if key not in found or found[key].age <= done.age:
                    found[key] = done
        return list(found.values())

    def _read(self, key: str) -> list[Done]:
        """The changelogs of an object. All of them are whole, or it is damaged: what one driver stores in it belongs together."""
        with local_disk(), tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "changelog"
            try:
                digest = download(self._store, key, path)
            except KeyError:
                raise CorruptDataError("the changelog is missing", path=key) from None
            with path.open("rb") as file:
                grouped = is_group(file.read(5))
            if not grouped:
                return [_done(path, key, digest, member=None)]
            found = []
            for member, changelog in enumerate(decode_group(path.read_bytes(), path=key)):
                path.write_bytes(changelog)
                found.append(_done(path, key, digest, member=member))
            return found

    def go_back(self, lineage: Lineage) -> None:
        """Go on after the jump that ends ``lineage``."""
        self._lineage = lineage

    @property
    def attempt(self) -> int:
        """Number of the attempt."""
        return self._lineage.attempt

    def write_without_rows(
        self, batch: int, uid: str, slots: Iterable[tuple[int, KeyGroupRange]], operator_state: WithoutRows | None
    ) -> list[ChangelogRef]:
        """Make durable that these slots had no rows in ``batch``: one changelog without changes for neighbours.

        Args:
            batch: The running batch.
            uid: The step.
            slots: Slots with their key groups.
            operator_state: Of these slots, in the first batch of a distribution.

        Returns:
            The changelogs that have operator state.

        Raises:
            UnavailableError: Storage did not answer.
        """
        written: list[ChangelogRef] = []
        for header, data in self.encode_without_rows(batch, uid, slots, operator_state):
            key = self.put(batch, data, of=(header.uid, header.slot, header.epoch))
            if operator_state is not None:
                written.append(_reference(header, key, digest_bytes(data)))
        return written

    def encode_without_rows(
        self, batch: int, uid: str, slots: Iterable[tuple[int, KeyGroupRange]], operator_state: WithoutRows | None
    ) -> Iterator[tuple[ChangelogHeader, bytes]]:
        """Return the changelogs for `write_without_rows`."""
        for neighbours, groups in _joined(slots):
            header = ChangelogHeader(
                uid=uid, slot=neighbours[0], batch=batch, epoch=WITHOUT_ROWS_EPOCH, first_key_group=groups.first, last_key_group=groups.last
            )
            entries: list[OperatorEntry] = []
            if operator_state is not None:
                states = tuple(info.to_json() for info in operator_state.states)
                update = {"operator_state": "all", "parallelism": operator_state.parallelism, "states": states}
                header = header.model_copy(update=update)
                entries = [entry for entry in operator_state.entries if entry.slot in neighbours]
            with local_disk(), tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "changelog"
                ChangelogWriter(path, header, entries).close()
                data = path.read_bytes()
            yield header, data

    def put(self, batch: int, data: bytes, *, of: tuple[str, int, int] | None) -> str:
        """Store an object with changelogs of ``batch`` under a new name.

        Args:
            batch: The batch.
            data: The object.
            of: Step, slot and epoch of the only changelog in it; None for a group.

        Returns:
            Its key.

        Raises:
            UnavailableError: Storage did not answer.
        """
        attempt = self._lineage.attempt
        key = paths.changelog_key(attempt, batch, *of) if of is not None else paths.changelog_group_key(attempt, batch)
        self._store.put(key, data)
        return key


def covers(refs: Iterable[ChangelogRef], max_parallelism: int) -> bool:
    """True if the changelogs of one step hold every key group."""
    covered = {group for ref in refs for group in range(ref.first, ref.last + 1)}
    return covered.issuperset(range(max_parallelism))


def _by_order(uid: str, found: Iterable[Done]) -> list[list[Done]]:
    """The changelogs of a step by the order in which their slots processed broadcast rows."""
    orders: dict[str | None, list[Done]] = {}
    for done in found:
        if done.ref.uid == uid:
            orders.setdefault(done.order, []).append(done)
    return list(orders.values())


def _query(order: Iterable[Done]) -> int:
    """Number of the last query at whose end all these slots may have acknowledged the order; -1 without broadcast rows."""
    return min(done.broadcast[1] if done.broadcast is not None else -1 for done in order)


def _done(path: Path, key: str, digest: FileDigest, *, member: int | None) -> Done:
    """Read a changelog to its end, which proves that it is whole.

    Args:
        path: Local file.
        key: Of the object that it is in.
        digest: Of that object.
        member: Which one of a group it is.
    """
    header, changes, _ = read_changelog(path, name=key)
    deque(changes, maxlen=0)
    rows, query = header.broadcast_digest, header.broadcast_query
    return Done(
        ref=_reference(header, key, digest, member),
        event_times_ms=(header.max_event_time_ms, header.second_max_event_time_ms),
        event_times_by_value=header.event_times_by_value or NO_VALUES,
        states=header.states,
        operator_state=header.operator_state is not None,
        broadcast=(rows, query) if rows is not None and query is not None else None,
    )


def _reference(header: ChangelogHeader, key: str, digest: FileDigest, member: int | None = None) -> ChangelogRef:
    return ChangelogRef(
        uid=header.uid,
        slot=header.slot,
        first=header.first_key_group,
        last=header.last_key_group,
        batch=header.batch,
        epoch=header.epoch,
        key=key,
        size_bytes=digest.size_bytes,
        checksum=digest.checksum,
        member=member,
    )


def _joined(slots: Iterable[tuple[int, KeyGroupRange]]) -> list[tuple[list[int], KeyGroupRange]]:
    """Neighbouring slots with their key groups as one range."""
    joined: list[tuple[list[int], KeyGroupRange]] = []
    for slot, groups in sorted(slots):
        if joined and joined[-1][1].last + 1 == groups.first:
            joined[-1] = ([*joined[-1][0], slot], KeyGroupRange(joined[-1][1].first, groups.last))
        else:
            joined.append(([slot], groups))
    return joined
