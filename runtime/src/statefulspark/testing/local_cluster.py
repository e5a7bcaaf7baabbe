"""LocalCluster: one attempt of a local job, with the real coordinator and real slots in threads of this process."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import cloudpickle

from statefulspark import failpoints
from statefulspark.checkpoint.formats.pipeline import Pipeline
from statefulspark.checkpoint.lineage.lineage import begin_attempt
from statefulspark.checkpoint.spark.location import LocationFiles
from statefulspark.checkpoint.spark.state_uploader import SparkStateUploader
from statefulspark.coordinator.coordinator import Coordinator, Listen
from statefulspark.coordinator.durable.durable_job import DurableJob
from statefulspark.coordinator.durable.recovery import batch_log, recovered_batch, restore_location, state_registry
from statefulspark.coordinator.durable.spark_location import SparkLocation
from statefulspark.coordinator.slots.memory_tuning import MemoryTuner
from statefulspark.coordinator.slots.state import LOST, READY
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.coordinator.snapshots.pending import CheckpointTimes
from statefulspark.errors import CorruptDataError, NotRestorableError, UnavailableError
from statefulspark.exchange.config import ExchangeConfig, SlotConfig
from statefulspark.process.rows.step_spec import idle_afters_ms, steps_before, watermark_columns
from statefulspark.process.runner.checkpointed_functions import is_checkpointed
from statefulspark.rpc.flight import FlightPeer
from statefulspark.rpc.messages.heartbeat import Heartbeat, SlotReport
from statefulspark.rpc.messages.slots import Ready, Register, RestoreFailed
from statefulspark.slot.process import listen, register, restored_service
from statefulspark.slot.service import SlotService
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings
from statefulspark.testing.local_job import JOB, LocalJob

_SECRET = "s"  # noqa: S105  it is served on a Unix socket of this user only
_WAIT_S = 5.0


class LocalCluster:
    """Starts the coordinator and the slots of an attempt; `close` ends them as abruptly as SIGKILL.

    Args:
        job: What the attempt runs.
        parallelism: Number of slots.
        origin: URL of a checkpoint or savepoint to start from. Defaults to the state of the attempt before.
    """

    def __init__(self, job: LocalJob, parallelism: int, origin: str | None = None) -> None:
        self.job = job
        job.drivers += 1
        self.location = job.folder / f"location-{job.drivers}"
        files = LocationFiles(self.location)
        lineage = begin_attempt(job.store, now_ms=1, origin=origin, open_store=open_store, claim_origin=job.claims)
        restore_location(files, lineage)
        durable = DurableJob(
            store=job.store,
            open_store=open_store,
            job_id=JOB,
            name=JOB,
            max_parallelism=job.step.max_parallelism,
            backend=job.backend,
            lineage=lineage,
            savepoint_dir=None,
            retained=job.retained,
            max_age_s=job.max_age_s,
            incremental=job.incremental,
            inline_limits=job.inline_limits,
            at_least_once=job.at_least_once,
        )
        if job.stored_key is not None:
            durable.pipeline = Pipeline(steps=(job.stored_key,))
        steps = job.all_steps()
        batches = batch_log(lineage, job.delays_ms(), steps_before(steps), idle_afters_ms(steps), watermark_columns(steps))
        self.coordinator = Coordinator(
            durable=durable,
            batches=batches,
            states=state_registry(lineage, job.store, changelogs=durable.changelogs, allow_non_restored=job.allow_non_restored),
            slots=SlotTable(parallelism, slots_per_executor=None),
            location=SparkLocation(files, SparkStateUploader(self.location), has_state=False),
            listen=Listen(host=None, secret=_SECRET),
            recovered=recovered_batch(lineage, batches),
            times=CheckpointTimes(interval_s=None, timeout_s=60),
            memory=MemoryTuner(
                backend=job.backend,
                budget_bytes=None,
                write_buffer_ratio=0.5,
                high_prio_pool_ratio=0.1,
                arena_bytes=1,
                process_bytes=1 << 30,
            ),
            checkpointed=[step.uid for step in steps if is_checkpointed(step.function)],
            now_ms=job.now_ms,
        )
        self.slots: dict[int, SlotService] = {}
        self.returns = 0
        """Number of times that the job went back to a checkpoint."""
        self._closed = False
        self._peer = FlightPeer(self.coordinator.endpoint.location, _SECRET)
        try:
            self._start_slots(parallelism)
        except BaseException:
            self.close()
            raise

    def _start_slots(self, parallelism: int) -> None:
        self.parallelism = parallelism
        step = self.job.step
        endpoint = self.coordinator.endpoint
        self.exchange = ExchangeConfig(
            coordinator=endpoint,
            uid=step.uid,
            max_parallelism=step.max_parallelism,
            parallelism=parallelism,
            start_wait_s=_WAIT_S,
            restore_wait_s=_WAIT_S,
        )
        self._slot_config = SlotConfig(
            coordinator=endpoint,
            job_name=JOB,
            parallelism=parallelism,
            max_parallelism=step.max_parallelism,
            steps=cloudpickle.dumps(self.job.all_steps()),
            python_path=(),
            store=self.job.store,
            storage=StorageSettings(),
            backend=self.job.backend,
            inline_max_bytes=self.job.inline_limits.checkpoint_bytes if self.job.backend == "memory" else None,
            local_dir=str(self.job.folder / "slots"),
            # Reads from a cache prove nothing about the store.
            cache_bytes=0 if self.job.backend in ("memory", "filesystem") else 1 << 20,
        )
        for index in range(parallelism):
            self.start_slot(index)

    def start_slot(self, index: int) -> None:
        """Kill the incarnation of the slot that runs, if any, and start another one, which restores the state."""
        old = self.slots.pop(index, None)
        if old is not None:
            old.close()
        while not self._started(index):
            if self.coordinator.going_back.wanted:
                self.go_back()
                return

    def _started(self, index: int) -> bool:
        """Does what `run_slot` does, without heartbeats. False if the slot must restore again, from another checkpoint."""
        config = replace(
            self._slot_config,
            store=self.job.store_of_slot(index),
            heap_timers=self.job.heap_timers,
            async_snapshots=self.job.async_snapshots,
        )
        work = Path(mkdtemp(prefix=f"slot-{index}-", dir=self.job.disk or self.job.folder))
        peer = self.peer_of_slot(index, config.coordinator.location, _SECRET)
        registered = register(peer, Register(slot=index, executor="e", host="h", pid=1))
        if registered is None:
            if self.coordinator.fatal is not None:
                raise self.coordinator.fatal
            return False  # operator state could not be distributed, so the job falls back to another checkpoint
        try:
            service = restored_service(config, index, registered, work, peer)
        except (CorruptDataError, NotRestorableError) as error:
            if peer.call(RestoreFailed(slot=index, epoch=registered.epoch, base=registered.base, error=error)).again:
                return False
            raise
        location, unix = listen(config, service, index)
        self.slots[index] = service
        reports = service.take_operator_reports()
        failpoints.reach("slot.opened")
        peer.call(Ready(slot=index, epoch=registered.epoch, location=location, unix=unix, timers=service.timers(), operator_state=reports))
        return True

    def peer_of_slot(self, index: int, location: str, secret: str) -> FlightPeer:  # noqa: ARG002  one that injects faults needs the slot
        """Returns the client with which slot ``index`` calls the coordinator."""
        return FlightPeer(location, secret)

    def start_retired_slots(self) -> None:
        """Start the slots again that the coordinator has retired, as happens when they send a heartbeat."""
        for slot in self.coordinator.view().slots:
            if slot.state == LOST and not slot.location and slot.index in self.slots:
                self.start_slot(slot.index)

    def go_back(self) -> None:
        """Take the job back to its last checkpoint, as a running job does."""
        for service in self.slots.values():
            service.close()
        self.slots = {}
        self.returns += 1
        while self.coordinator.going_back.wanted:
            with suppress(UnavailableError):  # a checkpoint is being published
                self.coordinator.going_back.run()
        self.coordinator.query.drain(on=False)
        self.coordinator.slots.replace(SlotTable(self.parallelism, slots_per_executor=None))
        self._start_slots(self.parallelism)
        self.coordinator.query.before_start()

    def rescale(self, parallelism: int) -> None:
        """Replace the slots between two batches, as a running job does."""
        self.coordinator.query.pause(_WAIT_S)
        for service in self.slots.values():
            service.close()
        self.slots = {}
        self.coordinator.slots.replace(SlotTable(parallelism, slots_per_executor=None))
        self._start_slots(parallelism)
        self.coordinator.query.resume()

    def sweep(self) -> None:
        """Remove expired entries and report, as each slot does with a heartbeat."""
        view = self.coordinator.view()
        if view.committed_time_ms is None:
            return
        for slot in view.slots:
            service = self.slots.get(slot.index)
            if service is not None and slot.state == READY:
                service.sweep(view.committed_time_ms)
                self._peer.call(Heartbeat(slot=slot.index, epoch=slot.epoch, report=_report_of(service)))

    def close(self) -> None:
        """End the coordinator and the slots; only storage and the job's folder keep anything. A second call does nothing."""
        if not self._closed:
            self._closed = True
            for service in self.slots.values():
                service.close()
            self._peer.close()
            self.coordinator.close()


def _report_of(service: SlotService) -> SlotReport:
    """Return a slot's report of its steps; it has no process of its own that could be measured."""
    return SlotReport(
        restore_ms=0,
        rss_bytes=0,
        pss_bytes=0,
        baseline_bytes=0,
        state_bytes=service.store.size_bytes(),
        coverage=0.0,
        states={},
        steps={uid: keyed_step.report() for uid, keyed_step in service.keyed_steps.items()},
    )
