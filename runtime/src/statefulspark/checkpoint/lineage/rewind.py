"""Rewinding: a job that starts from a checkpoint although later batches have run continues with batch numbers above all of them.

A sink that skips batches it has already committed would drop the output of a reused number. So the record of the last used number is
written again as a *jump*: a batch without rows that follows the checkpoint's batch and counts as committed. Its files contain Spark's
offsets and commit of the checkpoint's batch under the new number, and Spark continues with the next number.
"""

from __future__ import annotations

from statefulspark.checkpoint.catalog import StoredCheckpoint, checkpoint_ids, load
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.bundle import decode_bundle, encode_bundle
from statefulspark.checkpoint.formats.records import BatchRecord
from statefulspark.checkpoint.lineage.changelog_folders import attempts_with_changelogs, last_batch_with_changelogs
from statefulspark.errors import CorruptDataError, InvalidInputError, NotRestorableError
from statefulspark.storage.base import ObjectStore

_REMEDY = "Start it under another name (metadata.name), with a sink that writes to a new place"


def last_used_batch(store: ObjectStore) -> int:
    """The highest number that any attempt gave to a batch, -1 for none.

    Retention deletes records only of batches that a checkpoint contains, and never the newest checkpoint.

    Args:
        store: Opened at the job folder.

    Raises:
        NotRestorableError: The newest checkpoint cannot be read, so the number is not known.
        UnavailableError: Storage did not answer.
    """
    used = [found[1] for info in store.list(paths.BATCHES_PREFIX) if (found := paths.attempt_and_batch(info.key)) is not None]
    used += [last_batch_with_changelogs(store, attempt) for attempt in attempts_with_changelogs(store)]
    for number in reversed(checkpoint_ids(store)):
        try:
            return max([load(store, paths.metadata_key(paths.checkpoint_folder(number))).batch, *used])
        except InvalidInputError:
            continue  # it was abandoned
        except CorruptDataError as problem:
            if used:
                continue  # the records since are there
            raise NotRestorableError(
                f"the newest checkpoint is damaged, so it is unknown which batches have run: {problem}", field="from", remedy=_REMEDY
            ) from problem
    return max(used, default=-1)


def check_jump(base: StoredCheckpoint, last: int, *, spark_state: bool) -> None:
    """Raise if the job cannot continue from ``base`` with numbers above ``last``.

    Args:
        base: Checkpoint or savepoint that the job starts from.
        last: Highest number that was used.
        spark_state: True if the query has stateful steps of Spark's own.

    Raises:
        NotRestorableError: names the remedy.
    """
    if last <= base.metadata.batch:
        return
    if base.metadata.batch < 0:
        raise NotRestorableError(
            f"{base.url} was taken before the first batch, but batches up to {last} have run, and a sink may have committed them",
            field="from",
            remedy=_REMEDY,
        )
    if spark_state:
        raise NotRestorableError(
            f"{base.url} is at batch {base.metadata.batch}, but batches up to {last} may already be in the sink. The next batch needs a higher "
            "number, which is impossible because Spark keys the state of its own operators by batch number",
            field="from",
            remedy=_REMEDY,
        )


def jump_record(base: StoredCheckpoint, last: int, *, attempt: int, now_ms: int) -> BatchRecord | None:
    """The record that leads from the batch of ``base`` to ``last``; None when no later batch has run.

    Args:
        base: Checkpoint or savepoint that the attempt starts from.
        last: Highest number that was used.
        attempt: The attempt.
        now_ms: Current time, milliseconds since the epoch.

    Raises:
        NotRestorableError: There is no batch whose offsets Spark could resume from.
        CorruptDataError: The bundle of Spark's location is damaged.
    """
    location, batch = base.metadata.spark_location, base.metadata.batch
    if last <= batch or location is None:
        return None
    check_jump(base, last, spark_state=False)
    key = paths.resolve_reference(base.key, location.path)
    known = decode_bundle(base.store.get(key), path=paths.url_of(base.store.url, key))
    try:
        offsets, commit = known[f"offsets/{batch}"], known[f"commits/{batch}"]
    except KeyError as missing:
        raise CorruptDataError(f"the bundle of Spark's location lacks {missing.args[0]}", path=paths.url_of(base.store.url, key)) from None
    # Spark reads the last two plans when it starts.
    files = {f"offsets/{last - 1}": offsets, f"offsets/{last}": offsets, f"commits/{last}": commit}
    return BatchRecord(
        attempt=attempt,
        batch=last,
        previous=batch,
        processing_time_ms=max(now_ms, base.metadata.processed_ms),
        max_event_times=dict(base.metadata.watermarks),
        second_max_event_times=dict(base.metadata.second_watermarks),
        event_times_by_value=dict(base.metadata.event_times_by_value),
        files=encode_bundle(files),
        pipeline=base.metadata.pipeline,
    )


def is_jump(record: BatchRecord) -> bool:
    """True if a record is that of a jump: any other is written before its batch is committed."""
    return f"commits/{record.batch}" in decode_bundle(record.files, path=f"batch record {record.batch}")
