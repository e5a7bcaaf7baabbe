"""The coordinator: numbers batches, hands slots to exchanges, collects acknowledgements, and lets checkpoints start between batches.

It serves slots, exchange tasks and the tick source over Flight. Locks, in the order in which they may be nested:
the batch lock (everything about batches, held while a batch record is written), then those of the slot table and the state registry.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import structlog

from statefulspark import failpoints
from statefulspark.errors import CorruptDataError, FencedError, StatefulSparkError, UnavailableError
from statefulspark.exchange.flight import FlightService, error_of
from statefulspark.job.batches import BatchLog, BatchParameters
from statefulspark.job.checkpoints import CheckpointTimes
from statefulspark.job.dry_runs import DryRuns
from statefulspark.job.durable import DurableJob
from statefulspark.job.schedule import CheckpointSchedule
from statefulspark.job.slot_calls import SlotCalls
from statefulspark.job.slots import READY, Slot, SlotTable
from statefulspark.job.tuning import MemoryTuner
from statefulspark.keygroups import KeyGroupRange, key_group_range
from statefulspark.state.registry import StateRegistry

_log = structlog.get_logger("statefulspark.coordinator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where the coordinator answers."""

    host: str
    """Address to listen on."""
    secret: str = field(repr=False)
    """The job's secret; calls without it are refused."""


class Coordinator:
    """The driver's side of the batch protocol; one per attempt."""

    def __init__(
        self,
        *,
        durable: DurableJob,
        batches: BatchLog,
        states: StateRegistry,
        slots: SlotTable,
        dry_runs: DryRuns,
        listen: Listen,
        recovered: BatchParameters | None,
        times: CheckpointTimes,
        memory: MemoryTuner,
    ) -> None:
        """Start serving.

        Args:
            durable: the job's folder in storage, claimed by this attempt.
            batches: what recovery knows of batches.
            states: state ids.
            slots: the slots of the first parallelism.
            dry_runs: Spark's local checkpoint location, the state of its own steps there, and batches that run again for that alone.
            listen: address and secret.
            recovered: the uncommitted batch that runs again, with its parameters.
            times: when checkpoints are taken.
            memory: how slots divide their managed memory.
        """
        self.durable = durable
        self.batches = batches
        self.states = states
        self.slots = slots
        self.memory = memory
        self.drain = False
        self.fatal: StatefulSparkError | None = None
        self._files = dry_runs.files
        self._spark_state = dry_runs.state
        self.dry_runs = dry_runs
        self.secret = listen.secret
        self._recovered = recovered
        self._lock = threading.RLock()
        self._paused = False
        self._query_ending = False
        self._calls = SlotCalls(listen.secret)
        self._ticks: dict[str, int] = {}
        self.checkpoints = CheckpointSchedule(
            durable=durable,
            batches=batches,
            states=states,
            dry_runs=dry_runs,
            times=times,
            lock=self._lock,
            slots=lambda: self.slots.all(),  # noqa: PLW0108  of the table of now, which a rescale replaces
            call_slot=self._call_slot,
            fenced=self._fenced,
        )
        actions = {
            "begin": self._begin,
            "ack": self._ack,
            "planned": self._planned,
            "tick": self._tick,
            "register": self._register,
            "ready": self._ready,
            "restore-failed": self._restore_failed,
            "heartbeat": self._heartbeat,
            "slot-unreachable": self._slot_unreachable,
            "register-state": self._register_state,
            "changelogs": self._changelogs,
            "snapshot-done": self._snapshot_done,
        }
        self._service = FlightService(f"grpc+tcp://{listen.host}:0", listen.secret, actions)
        self.location = f"grpc+tcp://{listen.host}:{self._service.port}"

    # -- batches ---------------------------------------------------------------------------------------------------------

    def _begin(self, body: dict[str, Any]) -> dict[str, Any]:
        """An exchange of (uid, slot, batch) wants to run: begin the batch if it is new, and say where the slot is."""
        uid, index, batch = str(body["uid"]), int(body["slot"]), int(body["batch"])
        with self._lock:
            current = self.batches.current
            if current is None or batch > current.batch:
                if self._must_wait(batch):
                    return {"wait": "paused"}
                current = self._begin_batch(batch)
            elif batch < current.batch or batch <= self.batches.committed:
                raise FencedError(f"batch {batch} is over, the job is at {current.batch}")
            expected = self.batches.expected_batch(uid, index)
        slot = self.slots.get(index)
        if slot.state != READY:
            return {"wait": slot.state}
        return {
            "location": slot.location,
            "unix": slot.unix,
            "epoch": slot.epoch,
            "run": {
                "attempt": self.durable.attempt,
                "watermark": current.watermarks.get(uid),
                "processing_time": current.processing_time_ms,
                "expected": expected,
            },
        }

    def _planned(self, body: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  every action takes a body
        """Spark has written the offsets of a batch and waits for this before it runs it: begin the batch."""
        with self._lock:
            batch, current = self._files.planned_batch(), self.batches.current
            if batch < 0 or batch <= self.batches.committed or (current is not None and batch <= current.batch):
                return {}
            if self._query_ending:
                raise UnavailableError("the query is being stopped")
            if self._must_wait(batch):
                return {"wait": "paused"}
            self._begin_batch(batch)
        return {}

    def _must_wait(self, batch: int) -> bool:
        """Whether a new batch may not begin now. A recovered one may, because a pause waits for its end."""
        if self._recovered is not None:
            if batch == self._recovered.batch:
                return False
            if self._files.is_committed(self._recovered.batch) and self.dry_runs.wanted(self._recovered.batch):
                return True
        return self._paused or self.dry_runs.holds(batch)

    def end_query(self) -> None:
        """The query is about to be stopped: a batch that waits to begin is given up, because Spark does not interrupt that wait."""
        self._query_ending = True

    def next_query(self) -> bool:
        """A query is about to start: forget plans of batches that never began. True when it must be one without a sink."""
        with self._lock:
            self._query_ending = False
            current = self.batches.current
            if current is not None and current.batch > self.batches.committed and not self._files.is_committed(current.batch):
                # It runs again; or a cut-off driver commits the sink, it does not, and slots have acknowledged only a part of it here.
                self._recovered = current
            dry = self.dry_runs.next_query()
            known = [batch.batch for batch in (current, self._recovered) if batch is not None]
            self._files.forget_planned(after=max([self.batches.committed, *known]))
        return dry

    def _begin_batch(self, batch: int) -> BatchParameters:
        """Commit the batch before, make the new batch's record durable, start a checkpoint if one is due. The caller holds the lock."""
        if self.fatal is not None:
            raise self.fatal
        self.dry_runs.check(batch)
        log = self.batches
        if self._recovered is not None and batch > self._recovered.batch:
            self._adopt(self._recovered)
        log.commit_current()
        if self._recovered is not None and self._recovered.batch == batch:
            parameters = self._recovered
        else:
            parameters = log.next_parameters(batch, int(time.time() * 1000), drain=self.drain)
        failpoints.reach("driver.begin")
        try:
            self.durable.write_record(parameters, self._files, self._spark_state, log, [slot.epoch for slot in self.slots.all()])
        except FencedError as error:
            self.fatal = error
            raise
        failpoints.reach("driver.begun")
        if log.committed >= 0:
            self.checkpoints.start_if_due()
        log.begin(parameters)
        self._calls.settle(self.slots.all(), log)
        self._recovered = None
        return parameters

    def _adopt(self, recovered: BatchParameters) -> None:
        """The batch is committed, perhaps by an earlier driver so that it did not run here to its end: its changelogs are in storage."""
        parallelism = len(self.slots.all())
        ranges = [key_group_range(index, parallelism, self.durable.max_parallelism) for index in range(parallelism)]
        self.batches.adopt(recovered, self.durable.find_changelogs(recovered.batch), ranges)
        self._recovered = None
        _log.info("batch was taken over", batch=recovered.batch)

    def _ack(self, body: dict[str, Any]) -> dict[str, Any]:
        self.slots.check(int(body["slot"]), int(body["epoch"]))
        with self._lock:
            if not self.batches.acknowledge(body):
                raise FencedError(f"batch {body['batch']} is over")
        failpoints.reach("driver.acknowledged")
        return {}

    def _tick(self, body: dict[str, Any]) -> dict[str, Any]:
        """Offset of the tick source: now, while a timer is due; otherwise the last tick."""
        uid = str(body["uid"])
        now_ms = int(time.time() * 1000)
        with self._lock:
            if not self._paused and self.batches.tick_due(uid, now_ms, drain=self.drain):
                self._ticks[uid] = now_ms
            return {"tick": self._ticks.get(uid, 0)}

    def idle(self) -> bool:
        """Whether every slot has told its timers, none of them is due, and the last batch that began is committed."""
        now_ms = int(time.time() * 1000)
        with self._lock:
            if not self.slots.all_ready():
                return False
            return self._settled() and not any(self.batches.tick_due(uid, now_ms, drain=self.drain) for uid in self.batches.delays_ms)

    def _settled(self) -> bool:
        """Commit the current batch if Spark has; True when no batch is running."""
        current = self.batches.current
        if self._recovered is not None and self._files.is_committed(self._recovered.batch):
            if self.dry_runs.wanted(self._recovered.batch):
                return False
            self._adopt(self._recovered)
            return True
        if current is None:
            return self._recovered is None
        if not self._files.is_committed(current.batch) or self.dry_runs.batch is not None:
            return False
        self.batches.commit_current()
        return True

    def pause(self, timeout_s: float) -> None:
        """Let no further batch begin; returns when the running one is committed.

        Raises:
            UnavailableError: it did not end in time; batches go on.
        """
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._paused = True
        while time.monotonic() < deadline:
            with self._lock:
                if self._settled():
                    return
            time.sleep(0.02)
        self.resume()
        raise UnavailableError(f"the running batch did not end within {timeout_s:.0f} s")

    def resume(self) -> None:
        """Let batches begin again."""
        with self._lock:
            self._paused = False

    # -- slots -----------------------------------------------------------------------------------------------------------

    def _register(self, body: dict[str, Any]) -> dict[str, Any]:
        index = int(body["slot"])
        epoch = self.slots.register(index, str(body["executor"]), str(body["host"]), int(body["pid"]))
        if epoch is None:
            return {"declined": True}
        with self._lock:
            self._settled()
            expected = {uid: self.batches.expected_batch(uid, index) for uid in self.batches.delays_ms}
            restore = self.durable.restore_plan(index, len(self.slots.all()), self.batches)
            base = self.durable.base_url
        return {"epoch": epoch, "base": base, "restore": restore, "expected": expected, "memory": self.memory.for_slots()}

    def _ready(self, body: dict[str, Any]) -> dict[str, Any]:
        index = int(body["slot"])
        with self._lock:
            for uid, timers in body["timers"].items():
                self.batches.timers.setdefault((uid, index), (timers[0], timers[1]))
        self.slots.ready(index, int(body["epoch"]), str(body["location"]), str(body["unix"]))
        return {}

    def _restore_failed(self, body: dict[str, Any]) -> dict[str, Any]:
        """A slot cannot restore: from a damaged checkpoint the job falls back to the one before; anything else ends it."""
        self.slots.check(int(body["slot"]), int(body["epoch"]))
        error = error_of(body["error"])
        if isinstance(error, CorruptDataError):
            with self._lock:
                # Another slot may have reported the same checkpoint before.
                if body["base"] != self.durable.base_url or self._fell_back(error):
                    return {"again": True}
        elif self.fatal is None and error is not None:
            self.fatal = error
        return {}

    def _fell_back(self, error: CorruptDataError) -> bool:
        damaged = self.durable.base_url
        try:
            self.durable.fall_back(error, self.batches)
        except UnavailableError as later:
            _log.info("storage does not answer; the slot tries again", error=str(later)[:200])
            return True
        except StatefulSparkError as final:
            if self.fatal is None:
                self.fatal = final
            return False
        _log.warning("checkpoint is damaged and passed over", damaged=damaged, problem=str(error)[:300], base=self.durable.base_url)
        return True

    def _heartbeat(self, body: dict[str, Any]) -> dict[str, Any]:
        index = int(body.pop("slot"))
        self.slots.beat(index, int(body.pop("epoch")), body)
        return {"stop": self.slots.stopping, "memory": self.memory.for_slots()}

    def _slot_unreachable(self, body: dict[str, Any]) -> dict[str, Any]:
        self.slots.lose(int(body["slot"]), int(body["epoch"]))
        return {}

    def _register_state(self, body: dict[str, Any]) -> dict[str, Any]:
        return self.states.register(str(body["uid"]), str(body["name"]), str(body["kind"]), body["description"]).to_json()

    def _changelogs(self, body: dict[str, Any]) -> dict[str, Any]:
        key_groups = KeyGroupRange(int(body["first"]), int(body["last"]))
        refs = self.batches.changelogs_of(str(body["uid"]), key_groups, int(body["after"]), int(body["until"]))
        return {"changelogs": refs}

    def _call_slot(self, slot: Slot, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._calls.snapshot(slot, body)
        except UnavailableError:
            self.slots.lose(slot.index, slot.epoch)
            raise

    def stop_slots(self) -> None:
        """Tell every slot to end; those that do not hear it learn it from their next sign of life."""
        self.slots.stopping = True
        for slot in self.slots.all():
            if slot.state == READY:
                self._calls.stop(slot)

    def replace_slots(self, slots: SlotTable) -> None:
        """Go on with other slots (another parallelism); the caller has paused batches and stopped the old slots."""
        with self._lock:
            slots.next_epoch = self.slots.next_epoch
            self.slots = slots
            self.batches.reset_slots()

    # -- checkpoints and the end -----------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Called a few times a second: checkpoints of an idle query, and those that take too long."""
        self.checkpoints.expire()
        with self._lock:
            # First of all: whether a checkpoint is due depends on what is committed.
            if self._settled() and self.checkpoints.is_due() and self.slots.all_ready():
                self.checkpoints.start_if_due()

    def check_fence(self) -> None:
        """Notice a newer attempt although no batch runs; trouble with storage is left to the next batch."""
        try:
            self.durable.check_fence()
        except FencedError as error:
            self.fatal = error
        except StatefulSparkError as error:
            _log.info("cannot look for a newer attempt", error=str(error)[:200])

    def _snapshot_done(self, body: dict[str, Any]) -> dict[str, Any]:
        self.slots.check(int(body["slot"]), int(body["epoch"]))
        self.checkpoints.slot_done(body)
        return {}

    def _fenced(self, error: FencedError) -> None:
        self.fatal = error

    def close(self) -> None:
        """Stop serving."""
        self.checkpoints.close()
        self._calls.close()
        self._service.shutdown()
