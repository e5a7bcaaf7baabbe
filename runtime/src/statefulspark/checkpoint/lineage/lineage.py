"""Lineage: the checkpoint and the batches that make up the job's state, across restarts of the driver.

Each start of a driver is an attempt. It claims the next number, which fences every older driver, and only then reads
what they left (`begin_attempt`). An older driver writes a batch record first and checks for a newer claim afterwards
(`write_record`). So for each record, either the old driver sees the claim and stops before it runs the batch, or the new driver
sees the record: no batch runs outside the lineage.

The last record names a batch that was started and may not be committed. It runs again, with the watermarks and processing time
of its record. A record also proves that the previous batch was committed, and lists that batch's changelogs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

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
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import decode_document, encode_document
from statefulspark.checkpoint.formats.records import AttemptClaim, AttemptStart, BatchRecord, ChangelogRef, JobIdentity
from statefulspark.checkpoint.lineage.fencing import claim_attempt, refuse_fenced
from statefulspark.checkpoint.lineage.going_back import gone_back
from statefulspark.checkpoint.lineage.identity import job_name
from statefulspark.checkpoint.lineage.missing_objects import check_last_record, check_newest_start, check_nothing_left
from statefulspark.checkpoint.lineage.resumed import Lineage
from statefulspark.checkpoint.lineage.rewind import is_jump, jump_record, last_used_batch
from statefulspark.checkpoint.lineage.starts import newest_start, since
from statefulspark.checkpoint.transfers import read_again
from statefulspark.checkpoint.write.claiming import claim_savepoint
from statefulspark.checkpoint.write.copying import copy_checkpoint
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.storage.base import ObjectStore

__all__ = [
    "AttemptClaim",
    "AttemptStart",
    "BatchRecord",
    "ChangelogRef",
    "JobIdentity",
    "Lineage",
    "begin_attempt",
    "has_state",
    "read_record",
    "resolve",
    "resolve_left",
    "write_record",
]


def begin_attempt(
    store: ObjectStore,
    *,
    now_ms: int,
    origin: str | None = None,
    open_store: OpenStore,
    damaged: Collection[str] = (),
    sink_batch: int = -1,
    claim_origin: bool = False,
) -> Lineage:
    """Claim an attempt, determine the state it resumes from, and make that durable.

    From an ``origin`` the job continues with numbers above those of all its earlier batches (`rewind`), and so it does after batches that left no
    changelogs (`going_back`).

    Args:
        store: Opened at the job folder.
        now_ms: Current time, milliseconds since the epoch.
        origin: URL of a checkpoint or savepoint to start from, instead of continuing the lineage.
        open_store: Opens the store of an ``origin``.
        damaged: URLs of checkpoints to start from only if nothing else is left, because restoring them failed.
        sink_batch: Last batch that the sink is known to have; counts with an ``origin`` only.
        claim_origin: Whether the job claims the ``origin``, which is a savepoint, and deletes it after its first checkpoint.

    Raises:
        FencedError: A newer attempt was claimed meanwhile.
        InvalidInputError: ``origin`` is no checkpoint, or cannot be claimed.
        CorruptDataError: Nothing that is left can be restored; the text says why.
        UnavailableError: Storage did not answer.
    """
    claim = claim_attempt(store, now_ms=now_ms)
    attempt = claim.attempt
    if origin is None:
        found = resolve_left(store, open_store=open_store, marked=damaged)
        inherited = found.record_keys
        found = write_jump(store, gone_back(found, attempt=attempt, now_ms=now_ms), lambda: refuse_fenced(store, claim))
    else:
        inherited = ()
        found = _begin_from(store, origin, open_store, claim=claim, now_ms=now_ms, sink_batch=sink_batch, claim_origin=claim_origin)
    start = AttemptStart(
        attempt=attempt,
        created_ms=now_ms,
        origin=found.origin,
        checkpoints=found.checkpoints,
        records=inherited,
        claimed=found.claimed,
    )
    store.put_if_absent(paths.attempt_start_key(attempt), encode_document("attempt-start", start))
    refuse_fenced(store, claim)
    return replace(found, attempt=attempt, claim=claim, since=since(store, attempt))


def write_record(store: ObjectStore, record: BatchRecord, check_fence: Callable[[], None]) -> str:
    """Make a batch record durable and return its key; the batch may run when this returns.

    Args:
        store: Opened at the job folder.
        record: Of the batch that is about to run.
        check_fence: Raises if the driver's claim does not count any more; called after the write.

    Raises:
        FencedError: The claim does not count any more; stop without running the batch.
        ConflictError: The attempt already wrote another record of this batch.
        UnavailableError: Storage did not answer; try again with the same record.
    """
    key = paths.batch_key(record.attempt, record.batch)
    store.put_if_absent(key, encode_document("batch", record))
    check_fence()
    return key


def write_jump(store: ObjectStore, back: Lineage, check_fence: Callable[[], None]) -> Lineage:
    """Make a way back durable, which `gone_back` has found; does nothing if there is none.

    Args:
        store: Opened at the job folder.
        back: What the job resumes from.
        check_fence: See `write_record`.

    Returns:
        The same with the key of the jump.

    Raises:
        FencedError: The claim does not count any more.
        UnavailableError: Storage did not answer; the jump may be stored.
    """
    jump = back.records[-1] if back.records else None
    if jump is None or any(paths.batch_of(key) == jump.batch for key in back.record_keys):
        return back
    return replace(back, record_keys=(*back.record_keys, write_record(store, jump, check_fence)))


def read_record(store: ObjectStore, key: str) -> BatchRecord:
    """Read and verify a batch record.

    Raises:
        CorruptDataError: Damaged or missing.
        UnavailableError: Storage did not answer.
    """
    path = paths.url_of(store.url, key)
    try:
        return read_again(lambda: decode_document(store.get(key), "batch", BatchRecord, path=path))
    except KeyError:
        raise CorruptDataError("the batch record is missing", path=path) from None


def resolve(store: ObjectStore, *, open_store: OpenStore, damaged: Collection[str] = ()) -> Lineage:
    """Find the state that the newest attempt with a stored start resumed from.

    Args:
        store: Opened at the job folder.
        open_store: Opens the store of the lineage's origin in another folder.
        damaged: URLs of checkpoints that must not be the base, because restoring them failed.

    Raises:
        CorruptDataError: A needed record is damaged, or every checkpoint is and the batches since the beginning are gone.
        UnavailableError: Storage did not answer.
    """
    start = newest_start(store)
    check_newest_start(store, start.attempt if start is not None else 0)
    if start is None:
        return Lineage(attempt=0, base=None, records=(), record_keys=(), checkpoints=())
    keys = _record_keys(store, start)
    problems: list[str] = []
    own = list(_own_checkpoints(store, start, problems))
    base, records = _choose(store, start, own, keys, open_store=open_store, damaged=damaged, problems=problems)
    oldest = since(store, start.attempt)
    check_last_record(store, since=oldest, last=max([base.metadata.batch if base is not None else -1, *map(paths.batch_of, keys)]))
    if base is None and not keys:
        check_nothing_left(store, start)
    return Lineage(
        attempt=start.attempt,
        since=oldest,
        base=base,
        records=records,
        record_keys=keys,
        checkpoints=tuple(checkpoint.key for checkpoint in own),
        origin=start.origin,
        claimed=start.claimed,
        problems=tuple(problems),
    )


def resolve_left(store: ObjectStore, *, open_store: OpenStore, marked: Collection[str], failed: Collection[str] = ()) -> Lineage:
    """Like `resolve`, with the checkpoints that are marked as damaged as a last resort: what could not be read may be whole after all.

    Args:
        store: Opened at the job folder.
        open_store: Opens the store of the lineage's origin in another folder.
        marked: URLs of checkpoints that some driver could not restore.
        failed: URLs of those that this driver could not restore.

    Raises:
        CorruptDataError: Nothing that is left can be restored.
        UnavailableError: Storage did not answer.
    """
    try:
        return resolve(store, open_store=open_store, damaged={*marked, *failed})
    except CorruptDataError:
        if set(failed).issuperset(marked):
            raise
        return resolve(store, open_store=open_store, damaged=failed)


def has_state(store: ObjectStore) -> bool:
    """Return True if the next attempt would resume from existing state; False for a new job and for one whose state was removed.

    Raises:
        CorruptDataError: The newest start is damaged.
        UnavailableError: Storage did not answer.
    """
    start = newest_start(store)
    if start is None:
        return False
    known = start.origin is not None or bool(start.checkpoints) or bool(_record_keys(store, start))
    return known or next(_own_checkpoints(store, start, []), None) is not None


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
        if checkpoint.url in damaged:
            problems.append(f"{checkpoint.url}: skipped, because an earlier restore failed")
            continue
        try:
            check_presence(checkpoint.metadata, checkpoint.key, stored_sizes(store, checkpoint.folder))
            check_location(checkpoint)
        except CorruptDataError as problem:
            problems.append(str(problem))
            continue
        records = _records_after(store, checkpoint.metadata.batch, keys)
        if records is not None:
            return checkpoint, records
        problems.append(f"{checkpoint.url}: some batch records after batch {checkpoint.metadata.batch} are missing")
    if start.origin is not None and start.origin not in damaged:
        try:
            origin = open_checkpoint(start.origin, open_store)
        except InvalidInputError:
            problems.append(f"{start.origin}: it no longer exists")
        else:
            records = _records_after(store, origin.metadata.batch, keys)
            if records is not None:
                return origin, records
    elif start.origin is None and (keys or not problems):
        # Empty state is right only when every batch since the very first is known; never as a way out of damage.
        records = _records_after(store, -1, keys)
        if records is not None:
            return None, records
    raise CorruptDataError(
        "no checkpoint of the job can be restored with the batches after it. Start from a savepoint. Checkpoints tried: "
        + "; ".join(problems),
        path=store.url,
    )


def _own_checkpoints(store: ObjectStore, start: AttemptStart, problems: list[str]) -> Iterator[StoredCheckpoint]:
    """Readable checkpoints of this folder that belong to the lineage, newest first."""
    for checkpoint_id in reversed(checkpoint_ids(store)):
        folder = paths.checkpoint_folder(checkpoint_id)
        key = paths.metadata_key(folder)
        try:
            checkpoint = StoredCheckpoint(store, folder, load(store, key))
        except InvalidInputError:
            continue  # It is unfinished, or the retention of another driver has deleted it meanwhile.
        except CorruptDataError as problem:
            problems.append(str(problem))
            continue
        if key in start.checkpoints or checkpoint.metadata.attempt == start.attempt:
            yield checkpoint


def _records_after(store: ObjectStore, batch: int, keys: Iterable[str]) -> tuple[BatchRecord, ...] | None:
    """Records of all batches after ``batch`` that count, None when one of them is not stored. A jump back abandons those after its ``previous``."""
    base, records = batch, list[BatchRecord]()
    for key in keys:
        if paths.batch_of(key) <= base:
            continue
        record = read_record(store, key)
        if record.previous < batch and is_jump(record):
            records = [each for each in records if each.batch <= record.previous]
            batch = records[-1].batch if records else base
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
    by_batch = {paths.batch_of(key): key for key in stored if key in inherited}
    by_batch |= {paths.batch_of(key): key for key in stored if key.startswith(own)}
    return tuple(by_batch[batch] for batch in sorted(by_batch))


def _begin_from(
    store: ObjectStore,
    origin: str,
    open_store: OpenStore,
    *,
    claim: AttemptClaim,
    now_ms: int,
    sink_batch: int,
    claim_origin: bool,
) -> Lineage:
    """Copy the checkpoint, and lead its batch on to the highest number ever used; all before the start, which makes them count."""
    found = open_checkpoint(origin, open_store)
    if claim_origin:
        claim_savepoint(found, store.url, now_ms=now_ms)
    jump = jump_record(found, max(last_used_batch(store), sink_batch), attempt=claim.attempt, now_ms=now_ms)
    records = (jump,) if jump is not None else ()
    keys = tuple(write_record(store, record, lambda: refuse_fenced(store, claim)) for record in records)
    base = copy_checkpoint(found, store, job_name=job_name(store), attempt=claim.attempt, now_ms=now_ms, open_store=open_store)
    return Lineage(
        attempt=0,
        base=base,
        records=records,
        record_keys=keys,
        checkpoints=(base.key,),
        origin=found.url,
        copied_from=found.url,
        claimed=found.url if claim_origin else None,
    )
