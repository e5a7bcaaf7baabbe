"""LocalDriver: plans and runs the batches of a local job, in place of Spark.

It keeps offsets and commits where Spark keeps them, in the local checkpoint location, which is lost with the driver. Everything
else is what production runs: coordinator, slots, Flight, changelogs, checkpoints.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.snapshots.requests import SnapshotRequest
from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.exchange.task import exchange_partition, slot_of_first_row
from statefulspark.process.api.output_tag import MAIN
from statefulspark.process.output.side_outputs import untagged
from statefulspark.process.rows.columns import python_values
from statefulspark.rpc.messages.batches import PartitionRun, Planned, Tick, Wait
from statefulspark.testing.local_cluster import LocalCluster
from statefulspark.testing.local_job import LocalJob, Row

_PIECE_ROWS = 3
"""Rows per message, so that a batch of a few rows has several."""


class LocalDriver(LocalCluster):
    """One attempt of a job, and the loop of micro-batches that Spark runs in it."""

    def __init__(self, job: LocalJob, parallelism: int, origin: str | None = None) -> None:
        self._execution = 0
        self._tasks = 0
        super().__init__(job, parallelism, origin)

    # -- batches ---------------------------------------------------------------------------------------------------------

    def planned(self) -> int:
        """Returns the last batch in the offset log, -1 for none."""
        return _newest(self.location / "offsets")

    def plan(self, rows: int, limit: int | None = None) -> int | None:
        """Plan the next batch, unless the last one is not committed and must run again.

        Args:
            rows: Take at most so many rows from the source.
            limit: Number of rows that the source had when a query with ``availableNow`` started.

        Returns:
            The batch to run; None if there are no rows and no timer is due.
        """
        self.complete()
        batch = self.planned()
        if self.is_interrupted():
            return batch
        last = _read(self.location / "offsets" / str(batch)) if batch >= 0 else {"until": 0, "tick": 0}
        first = last["until"]
        until = min(len(self.job.input), first + rows)
        if limit is not None:
            until = max(first, min(until, limit))
        while isinstance(answer := self._peer.call(Tick(uid=self.job.step.uid, after=last["tick"])), Wait):
            time.sleep(0.01)
        tick = answer.offset
        if until == first and tick == last["tick"]:
            self.sweep()
            return None
        offsets = {"first": first, "until": until, "tick": tick, "ticked": tick > last["tick"]}
        _write(self.location / "offsets" / str(batch + 1), offsets)
        return batch + 1

    def offset(self) -> int:
        """Returns the offset in the source up to which rows are planned."""
        batch = self.planned()
        return int(_read(self.location / "offsets" / str(batch))["until"]) if batch >= 0 else 0

    def is_interrupted(self) -> bool:
        """True if the last planned batch is not committed."""
        return self.planned() > _newest(self.location / "commits")

    def begin(self) -> None:
        """Begin the planned batch, as the tick source asks the coordinator to do before Spark runs it."""
        self._peer.call(Planned())

    def complete(self) -> None:
        """Make the dry run of a batch that the sink has committed without reading all of it."""
        while self.coordinator.poll() and self.coordinator.fatal is None:
            self.start_retired_slots()
            if self.coordinator.query.before_start():
                self.dry_run(self.planned())
                _write(self.location / "commits" / str(self.planned()), {})
        self.start_retired_slots()

    def dry_run(self, batch: int) -> None:
        """Compute the batch without a sink."""
        self.evaluate(batch)

    def run(self, batch: int, *, deliver: bool = True, commit: bool = True, twice: bool = False, side_outputs: bool = True) -> None:
        """Run a planned batch to its end.

        Args:
            batch: Its number.
            deliver: False if the driver dies before it commits the sink.
            commit: False if the driver dies before Spark's own commit, after the sink's.
            twice: Run each task once more, as when a sink evaluates its rows twice.
            side_outputs: False if the driver dies after the main output and before the first side output.
        """
        if self.job.side_sinks:
            # Like foreachBatch: a batch that runs again is computed again, and each output ignores what it has.
            output = self.evaluate(batch, twice=twice)
            if not deliver:
                return
            sinks = [(MAIN, self.job.sink), *(self.job.side_sinks.items() if side_outputs else ())]
            for name, sink in sinks:
                sink.setdefault(batch, [row for tag, row in output if tag == name])
        elif batch not in self.job.sink:
            output = self.evaluate(batch, twice=twice)
            if not deliver:
                return
            self.job.sink[batch] = output
        if commit:
            _write(self.location / "commits" / str(batch), {})
        self.sweep()

    def evaluate(self, batch: int, *, twice: bool = False) -> list[Row]:
        """Compute all partitions of a planned batch and return their output; of a step with side outputs, pairs of an output's name and a row."""
        self._execution += 1
        return [row for number, each in enumerate(self.partitions(batch)) for row in self.run_task(batch, each, number, twice=twice)]

    def rows_of(self, batch: int) -> list[Any]:
        """Returns the input rows of a planned batch."""
        plan = _read(self.location / "offsets" / str(batch))
        return self.job.input[plan["first"] : plan["until"]]

    def partitions(self, batch: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each slot, with the tick row if a timer is due."""
        rows = self.rows_of(batch)
        slots = self.job.slots_of(rows, self.parallelism)
        ticked = _read(self.location / "offsets" / str(batch))["ticked"]
        for slot in range(self.parallelism):
            mine = self.job.batch_of([row for row, its in zip(rows, slots, strict=True) if its in (slot, None)], slot)
            if ticked:
                mine = pa.Table.from_batches([mine, self.job.tick_of(slot)]).combine_chunks().to_batches()[0]
            yield mine

    # -- tasks -----------------------------------------------------------------------------------------------------------

    def run_task(self, batch: int, rows: pa.RecordBatch, partition: int = 0, *, twice: bool = False) -> list[Row]:
        """Run one partition, and again after errors that `recover` deals with."""
        results: list[list[Row]] = []
        while len(results) < 1 + twice:
            try:
                results.append(self._exchanged(batch, rows, partition))
            except StatefulSparkError as error:
                self.recover(error, self.slot_of_rows(rows))
        if any(sorted(each, key=repr) != sorted(results[0], key=repr) for each in results):
            raise InvalidInputError(
                f"it emitted different rows when batch {batch} ran again",
                field="function",
                remedy="Let results depend on the input, the state, the timers and the times in the context only",
            )
        return results[-1]

    def recover(self, error: StatefulSparkError, slot: int) -> None:  # noqa: ARG002  for those who inject faults
        """Repair what made a task of ``slot`` fail, so that it can run again, or raise."""
        raise error

    def slot_of_rows(self, rows: pa.RecordBatch) -> int:
        """Returns the slot of a partition, 0 if it is empty."""
        return slot_of_first_row(rows, self.exchange) if rows.num_rows else 0

    def task_context(self, partition: int) -> PartitionRun:
        """Returns the numbers of a new task, as Spark gives them."""
        self._tasks += 1
        return PartitionRun(str(self._execution), partition, self._tasks)

    def _exchanged(self, batch: int, rows: pa.RecordBatch, partition: int) -> list[Row]:
        parts = [rows.slice(first, _PIECE_ROWS) for first in range(0, rows.num_rows, _PIECE_ROWS)]
        results = exchange_partition(self.exchange, batch, self.task_context(partition), iter(parts))
        if not self.job.step.side_outputs:
            return [row for part in results for row in _rows(part)]
        return [(name, row) for name, part in map(untagged, results) for row in _rows(part)]

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def checkpoint(self, savepoint: str | None = None) -> CheckpointInfo | StatefulSparkError:
        """Take a checkpoint between two batches, or a savepoint at the URL ``savepoint``."""
        return self.outcome(self.coordinator.snapshots.request(savepoint))

    def outcome(self, request: SnapshotRequest) -> CheckpointInfo | StatefulSparkError:
        """Wait for a checkpoint that was requested."""
        for _ in range(2000):
            self.complete()
            if request.done.wait(0.01):
                return request.result[0]
        raise UnavailableError("the checkpoint did not complete within 20 s")


def _rows(part: pa.RecordBatch) -> Iterator[Row]:
    return zip(*map(python_values, part.columns), strict=True)


def _newest(folder: Path) -> int:
    return max((int(path.name) for path in folder.iterdir()), default=-1) if folder.exists() else -1


def _read(path: Path) -> dict[str, Any]:
    text = path.read_text()
    if text.startswith("v"):
        # Spark's own log, in a savepoint of a job with Spark: its sources are not those of the test.
        return {"first": 0, "until": 0, "tick": 0, "ticked": False}
    found: dict[str, Any] = json.loads(text)
    return found


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
