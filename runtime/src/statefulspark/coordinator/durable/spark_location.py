"""SparkLocation: the files of Spark's local checkpoint location, and what they say about batches."""

from __future__ import annotations

from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.coordinator.core.life import Life, Spark
from statefulspark.errors import InvalidInputError


class SparkLocation:
    """The local checkpoint location of the query; guarded with the lock of the inbox, or by the only step that runs.

    Args:
        files: The location.
        state: Spark's state in it.
        has_state: True if the query has stateful steps of Spark's own.
    """

    def __init__(self, files: LocationFiles, state: SparkStateUploader, *, has_state: bool) -> None:
        self.state = state
        self.files = files
        self._has_state = has_state
        self._checked = False

    def facts(self, life: Life) -> Spark:
        """Read the facts from the files."""
        committed, batch = self.files.committed_batch(), life.in_question
        lacks_state = self._has_state and batch is not None and batch <= committed and not self.state.has_version(batch + 1)
        return Spark(planned=self.files.planned_batch(), committed=committed, has_state=not lacks_state)

    def next_query(self) -> None:
        """Another query begins: the state that it has is checked again."""
        self._checked = False

    def check(self, batch: int) -> None:
        """Raise when Spark's state after the batch before ``batch`` is not where the driver looks for it; looked at once per query.

        Raises:
            InvalidInputError: executors write it elsewhere, the step is new in the pipeline, or a sink skipped the batch.
        """
        if self._checked or not self._has_state or not self.files.is_committed(batch - 1):
            return
        if not self.state.has_version(batch):
            raise InvalidInputError(
                f"the state of Spark's own stateful steps after batch {batch - 1} is not in the driver's checkpoint location",
                field="spec.job",
                remedy="If executors run elsewhere, mount spec.checkpointing.sparkLocation in the driver and all of them. If the pipeline has "
                "a new stateful step, start the job without restoring state",
            )
        self._checked = True
