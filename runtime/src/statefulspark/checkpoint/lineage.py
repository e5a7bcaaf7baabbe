"""Lineage: which checkpoint and which batches the job's state is made of, across restarts of the driver.

Each start of a driver is an attempt. It first claims the next number, which fences every older driver, and only then reads
what they left (`begin_attempt`). An older driver writes a batch record first and looks for a newer claim afterwards
(`write_record`). So for each record either the old driver sees the claim and stops before it runs the batch, or the new driver
sees the record: no batch runs that the lineage does not know.

The last record names a batch that was started and perhaps not committed. It runs again, with the watermarks and processing time
of its record. A record therefore also proves that the batch before it was committed, and lists that batch's changelogs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from uuid import uuid4

from statefulspark.checkpoint import paths
from statefulspark.checkpoint.catalog import (
    OpenStore,
    StoredCheckpoint,
    check_location,
    check_presence,
    checkpoint_ids,
    load,
    open_checkpoint,
    stored_sizes,
)
from statefulspark.checkpoint.documents import decode_document, encode_document
from statefulspark.checkpoint.records import AttemptClaim, AttemptStart, BatchRecord, ChangelogRef, JobIdentity
from statefulspark.checkpoint.rewind import is_jump, jump_record, last_used_batch
from statefulspark.errors import ConflictError, CorruptDataError, FencedError, NotRestorableError
from statefulspark.storage.base import ObjectStore

__all__ = [
    "AttemptClaim",
    "AttemptStart",
    "BatchRecord",
    "ChangelogRef",
    "JobIdentity",
    "Lineage",
    "begin_attempt",
    "claim_attempt",
    "ensure_job",
    "is_fenced",
    "read_record",
    "resolve",
    "write_record",
]

_CLAIM_TRIES_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What the job's state is made of."""

    attempt: int
    """Attempt that it describes; 0 for a job that never started."""
    since: int = 1
    """The oldest attempt that may have run a batch of it."""
    base: StoredCheckpoint | None
    """Checkpoint to start from; None for empty state."""
    records: tuple[BatchRecord, ...]
    """Records of the batches after the base, in batch order."""
    record_keys: tuple[str, ...]
    """Keys of all stored records of the lineage, in batch order; also those that a base further back would need."""
    checkpoints: tuple[str, ...]
    """Keys of this folder's checkpoints in the lineage, newest first."""
    origin: str | None = None
    """URL of the checkpoint or savepoint of another folder that the lineage began with."""
    problems: tuple[str, ...] = ()
    """Why newer checkpoints were passed over."""

    @property
    def uncommitted_batch(self) -> int | None:
        """Batch that runs again first, None when there is none. That of a jump has run."""
        return self.records[-1].batch if self.records else None

    @property
    def last_committed_in_spark(self) -> int:
        """Last batch that Spark counts as done when the attempt starts, -1 for none."""
        if not self.records:
            return self.base.metadata.batch if self.base else -1
        return self.records[-1].batch - (not is_jump(self.records[-1]))

    @property
    def committed_batch(self) -> int:
        """Last batch that counts as done, -1 for none."""
        if self.records:
            return self.records[-1].previous
        return self.base.metadata.batch if self.base else -1

    @property
    def changelogs(self) -> tuple[ChangelogRef, ...]:
        """Changelogs to apply to the base, in batch order, up to the last committed batch."""
        after = self.base.metadata.replay_after if self.base else -1
        return tuple(ack for record in self.records for ack in record.acks if ack.batch > after)


def ensure_job(store: ObjectStore, name: str, max_parallelism: int) -> JobIdentity:
    """Create the identity of a job folder, or check that it is this job's.

    Args:
        store: Opened at the job folder.
        name: Name of the job.
        max_parallelism: Number of key groups, fixed for the job's life.

    Raises:
        NotRestorableError: The folder is another job's, or the number of key groups was another one.
        CorruptDataError: The identity is damaged.
    """
    wanted = JobIdentity(name=name, max_parallelism=max_parallelism)
    try:
        store.put_if_absent(paths.JOB_KEY, encode_document("job", wanted))
    except ConflictError:
        path = paths.url_of(store.url, paths.JOB_KEY)
        found = decode_document(store.get(paths.JOB_KEY), "job", JobIdentity, path=path)
        if found.name != name:
            raise NotRestorableError(
                f"{store.url} belongs to the job {found.name!r}, not to {name!r}",
                field="checkpointing.dir",
                remedy="Give each job its own directory or name; to start from another job's state, name its checkpoint or savepoint.",
            ) from None
        if found.max_parallelism != max_parallelism:
            raise NotRestorableError(
                f"the job was started with {found.max_parallelism} key groups, not {max_parallelism}",
                field="maxParallelism",
                remedy=f"Set maxParallelism to {found.max_parallelism}; it is fixed for the life of a job's state.",
            ) from None
    return wanted


def claim_attempt(store: ObjectStore, *, now_ms: int) -> int:
    """Take the next attempt number; from then on every older attempt is fenced.

    Args:
        store: Opened at the job folder.
        now_ms: Current time, milliseconds since the epoch.

    Raises:
        ConflictError: Other drivers took every number that was tried; start again later.
        UnavailableError: Storage did not answer.
    """
    number = max((attempt for attempt, _ in _attempts(store)), default=0)
    for _ in range(_CLAIM_TRIES_MAX):
        number += 1
        claim = AttemptClaim(attempt=number, created_ms=now_ms, nonce=uuid4().hex)
        try:
            store.put_if_absent(paths.attempt_key(number), encode_document("attempt", claim))
        except ConflictError:
            continue
        return number
    raise ConflictError(f"{store.url}: {_CLAIM_TRIES_MAX} attempt numbers in a row were taken by other drivers")


def is_fenced(store: ObjectStore, attempt: int) -> bool:
    """Whether a newer attempt has been claimed.

    One look at the next number is enough: numbers are taken in sequence and retention keeps the latest claims.
    """
    return store.head(paths.attempt_key(attempt + 1)) is not None


def begin_attempt(
    store: ObjectStore,
    *,
    now_ms: int,
    origin: str | None = None,
    open_store: OpenStore,
    damaged: Collection[str] = (),
    sink_batch: int = -1,
) -> Lineage:
    """Claim an attempt, find what it goes on from and make that durable.

    From an ``origin`` the job goes on with numbers above all that its batches ever had (`rewind`).

    Args:
        store: Opened at the job folder.
        now_ms: Current time, milliseconds since the epoch.
        origin: URL of a checkpoint or savepoint to start from instead of going on with the lineage.
        open_store: Opens the store of an ``origin``.
        damaged: URLs of checkpoints not to start from, because restoring them failed.
        sink_batch: Last batch that the sink is known to have; counts with an ``origin`` only.

    Raises:
        FencedError: A newer attempt was claimed meanwhile.
        InvalidInputError: ``origin`` is no checkpoint.
        CorruptDataError: Nothing that is left can be restored; the text says why.
        UnavailableError: Storage did not answer.
    """
    attempt = claim_attempt(store, now_ms=now_ms)
    if origin is None:
        found = resolve(store, open_store=open_store, damaged=damaged)
    else:
        found = _begin_from(store, origin, open_store, attempt=attempt, now_ms=now_ms, sink_batch=sink_batch)
    start = AttemptStart(
        attempt=attempt,
        created_ms=now_ms,
        origin=found.origin,
        checkpoints=found.checkpoints,
        records=found.record_keys if origin is None else (),
    )
    store.put_if_absent(paths.attempt_start_key(attempt), encode_document("attempt-start", start))
    _refuse_fenced(store, attempt)
    return replace(found, attempt=attempt, since=_since(store, attempt))


def write_record(store: ObjectStore, record: BatchRecord) -> str:
    """Make a batch record durable and return its key; the batch may run when this returns.

    Raises:
        FencedError: A newer attempt was claimed; stop without running the batch.
        ConflictError: The attempt already wrote another record of this batch.
        UnavailableError: Storage did not answer; try again with the same record.
    """
    key = paths.batch_key(record.attempt, record.batch)
    store.put_if_absent(key, encode_document("batch", record))
    _refuse_fenced(store, record.attempt)
    return key


def read_record(store: ObjectStore, key: str) -> BatchRecord:
    """Read and verify a batch record.

    Raises:
        CorruptDataError: Damaged or missing.
        UnavailableError: Storage did not answer.
    """
    path = paths.url_of(store.url, key)
    try:
        data = store.get(key)
    except KeyError:
        raise CorruptDataError("the batch record is missing", path=path) from None
    return decode_document(data, "batch", BatchRecord, path=path)


def resolve(store: ObjectStore, *, open_store: OpenStore, damaged: Collection[str] = ()) -> Lineage:
    """Find what the newest attempt that got to write its start stands on.

    Args:
        store: Opened at the job folder.
        open_store: Opens the store of the lineage's origin in another folder.
        damaged: URLs of checkpoints that must not be the base, because restoring them failed.

    Raises:
        CorruptDataError: A needed record is damaged, or every checkpoint is and the batches since the beginning are gone.
        UnavailableError: Storage did not answer.
    """
    start = _newest_start(store)
    if start is None:
        return Lineage(attempt=0, base=None, records=(), record_keys=(), checkpoints=())
    keys = _record_keys(store, start)
    problems: list[str] = []
    own = list(_own_checkpoints(store, start, damaged, problems))
    base, records = _choose(store, start, own, keys, open_store=open_store, damaged=damaged, problems=problems)
    return Lineage(
        attempt=start.attempt,
        since=_since(store, start.attempt),
        base=base,
        records=records,
        record_keys=keys,
        checkpoints=tuple(checkpoint.key for checkpoint in own),
        origin=start.origin,
        problems=tuple(problems),
    )


def _choose(
    store: ObjectStore,
    start: AttemptStart,
    own: Iterable[StoredCheckpoint],
    keys: tuple[str, ...],
    *,
    open_store: OpenStore,
    damaged: Collection[str],
    problems: list[str],
) -> tuple[StoredCheckpoint | None, tuple[BatchRecord, ...]]:
    """The newest checkpoint that is whole and followed by every record since, and those records."""
    for checkpoint in own:
        try:
            check_presence(checkpoint.metadata, checkpoint.key, stored_sizes(store, checkpoint.folder))
            check_location(checkpoint)
        except CorruptDataError as problem:
            problems.append(str(problem))
            continue
        records = _records_after(store, checkpoint.metadata.batch, keys)
        if records is not None:
            return checkpoint, records
        problems.append(f"{checkpoint.url}: the records of the batches after batch {checkpoint.metadata.batch} are not all there")
    if start.origin is not None and start.origin not in damaged:
        origin = open_checkpoint(start.origin, open_store)
        records = _records_after(store, origin.metadata.batch, keys)
        if records is not None:
            return origin, records
    elif start.origin is None and (keys or not problems):
        # Empty state is right only when every batch since the very first is known; never as a way out of damage.
        records = _records_after(store, -1, keys)
        if records is not None:
            return None, records
    raise CorruptDataError(
        "no checkpoint of the job can be restored together with the batches after it; start from a savepoint. " + "; ".join(problems),
        path=store.url,
    )


def _own_checkpoints(store: ObjectStore, start: AttemptStart, damaged: Collection[str], problems: list[str]) -> Iterator[StoredCheckpoint]:
    """Readable checkpoints of this folder that belong to the lineage, newest first."""
    for checkpoint_id in reversed(checkpoint_ids(store)):
        folder = paths.checkpoint_folder(checkpoint_id)
        key = paths.metadata_key(folder)
        if store.head(key) is None:
            continue
        try:
            checkpoint = StoredCheckpoint(store, folder, load(store, key))
        except CorruptDataError as problem:
            problems.append(str(problem))
            continue
        if checkpoint.url in damaged:
            problems.append(f"{checkpoint.url}: could not be restored before")
        elif key in start.checkpoints or checkpoint.metadata.attempt == start.attempt:
            yield checkpoint


def _records_after(store: ObjectStore, batch: int, keys: Iterable[str]) -> tuple[BatchRecord, ...] | None:
    """Records of all batches after ``batch``, None when one of them is not stored."""
    records: list[BatchRecord] = []
    for key in keys:
        if _batch_of(key) <= batch:
            continue
        record = read_record(store, key)
        if record.previous != batch:
            return None
        records.append(record)
        batch = record.batch
    return tuple(records)


def _record_keys(store: ObjectStore, start: AttemptStart) -> tuple[str, ...]:
    """Stored records of the lineage in batch order: inherited ones that retention has left, and the attempt's own."""
    stored = [info.key for info in store.list(paths.BATCHES_PREFIX)]
    inherited = set(start.records)
    own = f"{paths.BATCHES_PREFIX}{start.attempt:08d}/"
    by_batch = {_batch_of(key): key for key in stored if key in inherited}
    by_batch |= {_batch_of(key): key for key in stored if key.startswith(own)}
    return tuple(by_batch[batch] for batch in sorted(by_batch))


def _batch_of(key: str) -> int:
    numbers = paths.attempt_and_batch(key)
    if numbers is None:
        raise CorruptDataError("not the name of a batch record", path=key)
    return numbers[1]


def _begin_from(store: ObjectStore, origin: str, open_store: OpenStore, *, attempt: int, now_ms: int, sink_batch: int) -> Lineage:
    base = open_checkpoint(origin, open_store)
    checkpoints: tuple[str, ...] = ()
    if paths.same_folder(base.store.url, store.url):
        # A checkpoint of this very folder: the job goes back to it, and may go on sharing its files.
        base = StoredCheckpoint(store, base.folder, base.metadata)
        checkpoints = (base.key,)
    jump = jump_record(base, max(last_used_batch(store), sink_batch), attempt=attempt, now_ms=now_ms)
    records = (jump,) if jump is not None else ()
    keys = tuple(write_record(store, record) for record in records)  # before the start, which makes it count
    return Lineage(attempt=0, base=base, records=records, record_keys=keys, checkpoints=checkpoints, origin=base.url)


def _newest_start(store: ObjectStore) -> AttemptStart | None:
    started = [attempt for attempt, is_start in _attempts(store) if is_start]
    return _read_start(store, max(started)) if started else None


def _since(store: ObjectStore, attempt: int) -> int:
    """The newest attempt that inherited no records: none before it ran a batch that the lineage still needs."""
    started = sorted((number for number, is_start in _attempts(store) if is_start and number <= attempt), reverse=True)
    return next((number for number in started if not _read_start(store, number).records), started[-1] if started else attempt)


def _read_start(store: ObjectStore, attempt: int) -> AttemptStart:
    key = paths.attempt_start_key(attempt)
    return decode_document(store.get(key), "attempt-start", AttemptStart, path=paths.url_of(store.url, key))


def _attempts(store: ObjectStore) -> list[tuple[int, bool]]:
    return [found for info in store.list(paths.ATTEMPTS_PREFIX) if (found := paths.attempt_of(info.key)) is not None]


def _refuse_fenced(store: ObjectStore, attempt: int) -> None:
    if is_fenced(store, attempt):
        raise FencedError(f"{store.url}: attempt {attempt} of the job was replaced by a newer one; this driver must stop")
