"""EventRunner: what each event does to the drivers and the storage of a `TestingJob`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from statefulspark.checkpoint.catalog import checkpoint_ids
from statefulspark.checkpoint.formats import paths
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import FencedError, InternalError, InvalidInputError, StatefulSparkError
from statefulspark.process.adapters.function_adapters import adapted_to
from statefulspark.testing.events import (
    ADVANCE,
    DOWNTIME,
    FAIL_STORAGE,
    KILL_SLOT,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    UPGRADE,
    AnyEvent,
    Event,
    strikes_batch,
)
from statefulspark.testing.interruptible_driver import FaultyJob, InterruptibleDriver
from statefulspark.testing.job_input import name_of


class EventRunner:
    """Runs batches on the present driver, and replaces it when an event says so.

    Attributes:
        driver: The present driver.
        paused: The driver that does not respond, if there is one.
        drained: True after ``DRAIN``.
        savepoints: URLs of savepoints, oldest first.
        errors: The errors of resumed drivers.
    """

    def __init__(self, job: FaultyJob, parallelism: int, origin: str | None) -> None:
        self.paused: InterruptibleDriver | None = None
        self.drained = False
        self.savepoints: list[str] = []
        self.errors: list[StatefulSparkError] = []
        self._job = job
        self._check_parallelism(parallelism)
        self.driver = InterruptibleDriver(job, parallelism, origin)
        # The rows before the checkpoint were the other job's.
        job.input = [None] * self.driver.offset()

    def happen(self, event: AnyEvent, rows: list[Any]) -> None:
        """Run ``rows`` as one batch, with the event within it or after it."""
        if rows:
            self._run_due()  # a batch that has failed runs again before its successor
        self._job.input += rows
        if strikes_batch(event):
            self._run_struck(event)
        else:
            if rows:
                self._run_due()
            self._apply(event)
        self._run_due()

    def savepoint(self, url: str) -> str:
        """Take a savepoint below ``url`` and return its own URL."""
        return self._taken(url).path

    def close(self) -> None:
        """End all drivers."""
        self.driver.close()
        if self.paused is not None:
            self.paused.close()

    # -- batches ---------------------------------------------------------------------------------------------------------

    def _run_due(self) -> None:
        """Run batches until no row is left and no timer is due."""
        while self._run_next():
            pass

    def _run_next(self, **how: bool) -> bool:
        """Run the next batch, if there is one; after an error the query restarts with the next batch."""
        try:
            batch = self.driver.plan(len(self._job.input))
            if batch is not None:
                self.driver.run(batch, **how)
        except StatefulSparkError:
            self.driver.coordinator.query.before_start()
            raise
        return batch is not None

    def _run_struck(self, event: AnyEvent) -> None:
        if isinstance(event, KILL_SLOT):
            self._check_slot(event.slot)
        if isinstance(event, KILL_SLOT | FAIL_STORAGE):
            self._job.faults.arm(event)
        lost_before, lost_after = event is Event.KILL_DRIVER_BEFORE_SINK_COMMIT, event is Event.KILL_DRIVER_AFTER_SINK_COMMIT
        lost_between = event is Event.KILL_DRIVER_BETWEEN_OUTPUTS
        if lost_between and not self._job.side_sinks:
            raise InvalidInputError("the job has no side output", field="KILL_DRIVER_BETWEEN_OUTPUTS", remedy="Pass side_outputs=[...]")
        try:
            self._run_next(
                deliver=not lost_before,
                side_outputs=not lost_between,
                commit=not (lost_before or lost_between or lost_after),
                twice=event is Event.RETRY_BATCH,
            )
        finally:
            unused = self._job.faults.disarm()
        if unused:
            raise InvalidInputError(
                f"{name_of(event)} did not happen: no row of the batch belongs to the slot",
                field="items",
                remedy="Find the slot of a key with slot_of(key)",
            )
        if lost_before or lost_between or lost_after:
            self._restart()

    # -- events ----------------------------------------------------------------------------------------------------------

    def _apply(self, event: AnyEvent) -> None:  # noqa: C901, PLR0912  one case per event
        match event:
            case Event.BATCH:
                pass
            case Event.CHECKPOINT:
                self._taken(None)
            case Event.SAVEPOINT:
                self.savepoints.append(self.savepoint(f"file://{self._job.folder}/savepoints"))
            case Event.DRAIN:
                self.drained = True
                self.driver.coordinator.query.drain()
            case Event.KILL_DRIVER:
                self._restart()
            case Event.PAUSE_DRIVER:
                self.paused = self.driver
                self._start(self.driver.parallelism)
            case Event.RESUME_DRIVER:
                self._resume()
            case Event.DAMAGE_CHECKPOINT:
                self._damage()
            case KILL_SLOT(slot):
                self._check_slot(slot)
                self.driver.start_slot(slot)
            case RESCALE(parallelism):
                self._check_parallelism(parallelism)
                self.driver.rescale(parallelism)
            case ADVANCE(ms):
                self._job.processing_time_ms += ms
            case DOWNTIME(ms):
                self.driver.close()
                self._job.processing_time_ms += ms
                self._start(self.driver.parallelism)
            case UPGRADE(function, allow_non_restored_state):
                self._job.step = replace(self._job.step, function=adapted_to(function, self._job.step.input_schema))
                self._job.allow_non_restored = allow_non_restored_state
                self._restart()
            case RESTORE_FROM_SAVEPOINT(parallelism):
                wanted = parallelism if parallelism is not None else self.driver.parallelism
                self._check_parallelism(wanted)
                self.driver.close()
                self._start(wanted, self.savepoints[-1])
            case _:
                raise InternalError(f"{name_of(event)} is not handled")

    def _restart(self) -> None:
        self.driver.close()
        self._start(self.driver.parallelism)

    def _start(self, parallelism: int, origin: str | None = None) -> None:
        self.driver = InterruptibleDriver(self._job, parallelism, origin)
        self.driver.coordinator.query.drain(on=self.drained)

    def _resume(self) -> None:
        paused = self.paused
        if paused is None:
            raise InvalidInputError("no driver is paused", field="RESUME_DRIVER", remedy="Put PAUSE_DRIVER before it")
        self.paused = None
        try:
            batch = paused.plan(len(self._job.input))
            if batch is None:
                raise InvalidInputError(
                    "the paused driver has missed no row", field="RESUME_DRIVER", remedy="Put rows between PAUSE_DRIVER and RESUME_DRIVER"
                )
            paused.evaluate(batch)
        except FencedError as error:
            self.errors.append(error)
        else:
            raise InternalError("a driver that was replaced while it was paused has run a batch")
        finally:
            paused.close()

    def _damage(self) -> None:
        ids = checkpoint_ids(self._job.store)
        if not ids:
            raise InvalidInputError("the job has no checkpoint", field="DAMAGE_CHECKPOINT", remedy="Put CHECKPOINT before it")
        key = paths.metadata_key(paths.checkpoint_folder(ids[-1]))
        data = self._job.store.get(key)
        self._job.store.put(key, data[: len(data) // 2])

    def _taken(self, savepoint: str | None) -> CheckpointInfo:
        if self.driver.is_interrupted():
            raise InvalidInputError(
                "the last batch failed and was not run again", field="items", remedy="Run the job on first, with an UPGRADE if needed"
            )
        outcome = self.driver.checkpoint(savepoint)
        if isinstance(outcome, StatefulSparkError):
            raise outcome
        return outcome

    # -- checks ----------------------------------------------------------------------------------------------------------

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.driver.parallelism:
            raise InvalidInputError(
                f"there is no slot {slot}", field="KILL_SLOT", remedy=f"The job has slots 0 to {self.driver.parallelism - 1}"
            )

    def _check_parallelism(self, parallelism: int) -> None:
        groups = self._job.step.max_parallelism
        if not 1 <= parallelism <= groups:
            raise InvalidInputError(f"{parallelism} is out of range", field="parallelism", remedy=f"Choose 1 to max_parallelism, {groups}")
