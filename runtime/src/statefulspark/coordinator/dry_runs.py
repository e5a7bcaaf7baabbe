"""Dry runs: a batch that the sink had already, or did not read completely, run again for the sake of state alone.

A new driver starts from the state before the last recorded batch and lets Spark run that batch again. A sink that knows the
batch, such as Spark's file sink, then skips it without running its plan. Keyed state does not mind, because each slot's changes of the
batch are in storage. Spark's own stateful steps did not run, though, so their state after the batch is missing and the next batch
could not begin. Then the batch's commit is taken back, and the same pipeline runs the batch with its recorded offsets and
watermarks into nothing; it makes the missing state, and slots take the batch as a retry. After that the real query goes on.

A batch whose rows the sink read in part only, or of which no attempt has left complete changelogs, is completed in the same way.

Pure but for the files of the checkpoint location; the coordinator guards it with its lock.
"""

from __future__ import annotations

from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.errors import InvalidInputError


class DryRuns:
    """Finds out whether a batch needs a dry run, and follows it.

    Args:
        files: The local checkpoint location.
        state: Spark's state in it.
        has_state: Whether the query has stateful steps of Spark's own.
    """

    def __init__(self, files: LocationFiles, state: SparkStateUploader, *, has_state: bool) -> None:
        self.state = state
        self.files = files
        self._has_state = has_state
        self.batch: int | None = None
        """The batch that needs a dry run; None when there is none."""
        self.running = False
        """True if the present query is the one without a sink."""
        self._checked = False
        self._last: int | None = None

    def complete(self, batch: int) -> bool:
        """Ask for a dry run of the committed ``batch``, which keyed steps have not processed completely. False if it had one already."""
        if self._last == batch:
            return False
        self.batch = batch
        return True

    def wanted(self, batch: int) -> bool:
        """True if the recovered ``batch`` was committed without having run, or its dry run is not over."""
        if self.batch is None and self._has_state and self.files.is_committed(batch) and not self.state.has_version(batch + 1):
            self.batch = batch
        return self.batch is not None

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

    def due(self) -> bool:
        """True if it is time for another query: the one without a sink, or after it the real one."""
        if self.batch is None:
            return False
        return not self.running or (self.files.is_committed(self.batch) and self._has_version(self.batch + 1))

    def _has_version(self, version: int) -> bool:
        return not self._has_state or self.state.has_version(version)

    def holds(self, batch: int) -> bool:
        """True if ``batch`` must wait until the dry run is over."""
        return self.batch is not None and batch > self.batch

    def go_back(self) -> None:
        """Forget the batches of before: the job goes back, and the location is another one."""
        self.batch = self._last = None
        self.running = self._checked = False

    def next_query(self) -> bool:
        """Prepare the location for the query that is about to start; True when it is one without a sink."""
        self._checked = False
        if self.batch is not None and self.due():
            if self.running:
                self._last, self.batch = self.batch, None
                self.running = False
            else:
                self.files.forget_commit(self.batch)
                self.running = True
        return self.running
