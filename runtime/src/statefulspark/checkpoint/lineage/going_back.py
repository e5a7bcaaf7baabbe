"""Going back: a job some of whose committed batches left no changelogs resumes from the last state that is stored.

In checkpointing mode ``at-least-once`` batches run without changelogs, and their records say so. The state after such a batch exists in slots
and in later checkpoints only. If it is lost, the job goes back to the last state before it that is stored: a checkpoint, or a checkpoint
and the changelogs of the batches that have them. As in a rewind, the way back is a *jump*: a record under a number above all that were used, with
Spark's offsets and commit of the batch that the job goes back to. Batches between the two are abandoned, and their rows are processed again.
"""

from __future__ import annotations

from dataclasses import replace

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.bundle import decode_bundle, encode_bundle
from statefulspark.checkpoint.formats.records import BatchRecord
from statefulspark.checkpoint.lineage.resumed import Lineage
from statefulspark.checkpoint.spark.stored_location import location_files
from statefulspark.errors import CorruptDataError


def gone_back(lineage: Lineage, *, attempt: int | None = None, now_ms: int = 0, used: int = -1, abandon_last: bool = False) -> Lineage:
    """Return the lineage that the job resumes from, with the record of the jump as its last one; the same lineage if all of its state is stored.

    Nothing is written: the jump counts once its record is.

    Args:
        lineage: What is stored.
        attempt: The running attempt. Defaults to that of the lineage.
        now_ms: Current time, milliseconds since the epoch.
        used: A number that may have been given to a batch without a record.
        abandon_last: True if the batch of the last record does not run again under its number, because its slots may have lost what it changed.

    Raises:
        CorruptDataError: No checkpoint that can be restored has Spark's offsets of the batch to go back to.
    """
    records = lineage.records if abandon_last else lineage.records[:-1]
    first = next((number for number, record in enumerate(records) if record.without_changelogs), None)
    if first is None:
        return lineage
    kept, abandoned = lineage.records[:first], lineage.records[first]
    stored = replace(lineage, records=kept)
    offsets, commit = _plan_of(stored, abandoned)
    number = max(used, lineage.records[-1].batch, *map(paths.batch_of, lineage.record_keys)) + 1
    jump = BatchRecord(
        attempt=attempt or max(lineage.attempt, 1),
        batch=number,
        previous=abandoned.previous,
        processing_time_ms=max(now_ms, *(record.processing_time_ms for record in lineage.records)),
        max_event_times=abandoned.max_event_times,
        second_max_event_times=abandoned.second_max_event_times,
        event_times_by_value=abandoned.event_times_by_value,
        acks=abandoned.acks,
        # Spark reads the last two plans when it starts.
        files=encode_bundle({f"offsets/{number - 1}": offsets, f"offsets/{number}": offsets, f"commits/{number}": commit}),
        pipeline=stored.pipeline,
    )
    return replace(lineage, records=(*kept, jump))


def _plan_of(stored: Lineage, abandoned: BatchRecord) -> tuple[bytes, bytes]:
    """Spark's offsets and commit of the last batch whose state is stored. Its commit came after its own record."""
    batch = abandoned.previous
    known, _ = location_files(stored)
    later = decode_bundle(abandoned.files, path=f"batch record {abandoned.batch}")
    try:
        return known[f"offsets/{batch}"], {**later, **known}[f"commits/{batch}"]
    except KeyError as missing:
        raise CorruptDataError(
            f"the job must go back to batch {batch}, but {missing.args[0]} of Spark's location is not stored. Start from a savepoint with --from PATH",
            path=stored.base.url if stored.base is not None else paths.BATCHES_PREFIX,
        ) from None
