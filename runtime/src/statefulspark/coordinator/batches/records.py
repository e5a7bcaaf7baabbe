"""Writes the record of each batch before the batch runs.

A record whose write failed may have reached storage although the answer did not. From then on its batch has begun: the same record is
written again, and the batch runs with its offsets, watermarks and processing time and no others, also in a query that was restarted, and
also if the write was answered and something after it failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from statefulspark import failpoints
from statefulspark.checkpoint.formats.bundle import decode_bundle, encode_bundle
from statefulspark.checkpoint.formats.pipeline import Pipeline
from statefulspark.checkpoint.formats.records import BatchRecord
from statefulspark.checkpoint.lineage.lineage import Lineage, write_record
from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.coordinator.batches.changelogs import BatchChangelogs
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.core.life import BatchParameters
from statefulspark.storage.base import ObjectStore


class BatchRecords:
    """The batch records of one attempt.

    Args:
        store: Opened at the job's folder.
        lineage: What the attempt starts from.
        check_fence: Raises if a newer attempt runs the job.
        changelogs: Of batches, in storage.
    """

    def __init__(
        self,
        store: ObjectStore,
        lineage: Lineage,
        check_fence: Callable[[], None],
        changelogs: BatchChangelogs,
    ) -> None:
        self._store = store
        self._lineage = lineage
        self._check_fence = check_fence
        self._changelogs = changelogs
        self._last: BatchRecord | None = None

    def go_back(self, lineage: Lineage) -> None:
        """Go on after the jump that ends ``lineage``. The last record is of an abandoned batch."""
        self._lineage = lineage
        self._last = None

    def write(
        self,
        parameters: BatchParameters,
        pipeline: Pipeline | None,
        location: LocationFiles,
        state: SparkStateUploader,
        log: BatchLog,
    ) -> None:
        """Make the record of a new batch durable; of a batch that was tried before, the same record is written again.

        Raises:
            FencedError: a newer attempt runs the job.
            UnavailableError: storage does not answer.
        """
        record = self._last
        if record is None or record.batch != parameters.batch:
            state.capture(self._store, self._lineage.attempt, parameters.batch - 1)
            failpoints.reach("driver.state.stored")
            files, packs = location.new_files(), state.record()
            record = self._recovered(parameters, pipeline, files) or self._new(parameters, files, log)
            update = {"spark_state": (*record.spark_state, *packs), "pipeline": pipeline}
            self._last = record = record.model_copy(update=update)
        write_record(self._store, record, self._check_fence)
        location.confirm()
        state.confirm()

    def _new(self, parameters: BatchParameters, files: dict[str, bytes], log: BatchLog) -> BatchRecord:
        acks = [*(ack.changelog for ack in log.acknowledgements.values() if ack.changelog is not None), *log.without_rows]
        if log.current is None and log.committed >= 0:
            # An attempt that resumed from a checkpoint alone saw nobody acknowledge its batch. Should the checkpoint turn out to be
            # damaged, the one before it needs these changelogs.
            acks = self._changelogs.of_committed(log.committed)
        return BatchRecord(
            attempt=self._lineage.attempt,
            batch=parameters.batch,
            previous=log.committed,
            processing_time_ms=parameters.processing_time_ms,
            watermarks=dict(parameters.watermarks),
            max_event_times=log.event_times.of_input(0),
            second_max_event_times=log.event_times.of_input(1),
            event_times_by_value=log.event_times.by_value(),
            acks=tuple(acks),
            files=encode_bundle(files),
            without_changelogs=_marked(parameters),
        )

    def _recovered(self, parameters: BatchParameters, pipeline: Pipeline | None, files: dict[str, bytes]) -> BatchRecord | None:
        """The record of the batch that runs again; None when it is another batch.

        It takes the place of the earlier attempt's in the lineage of the next attempt, so it must say all that that one says:
        the changelogs of the batch before, of which this attempt has seen no acknowledgement, and Spark's plan of the batch. Its watermarks
        are those of the steps that this attempt has, which it must all have processed before its changelogs of the batch are adopted.
        """
        batch = parameters.batch
        earlier = self._lineage.records[-1] if self._lineage.records else None
        if earlier is None or earlier.batch != batch:
            return None
        if pipeline is None or (earlier.pipeline is not None and earlier.pipeline.sources == pipeline.sources):
            files = decode_bundle(earlier.files, path=f"batch record {batch}") | files
        # Otherwise the location was rewritten for other sources, and all of it is new.
        update = {
            "attempt": self._lineage.attempt,
            "epochs": (),
            "watermarks": dict(parameters.watermarks),
            "files": encode_bundle(files),
            "without_changelogs": _marked(parameters),
        }
        return earlier.model_copy(update=update)


def _marked(parameters: BatchParameters) -> Literal[True] | None:
    return None if parameters.with_changelogs else True
