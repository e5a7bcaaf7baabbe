"""A hand-written JobControls: a small state machine without Spark, with switches to make each method fail or hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, replace

from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.config.savepoints import SavepointFormat
from statefulspark.coordinator.controls import Cancellation, CheckpointInfo, JobState, JobStatus, MemoryChange, MemoryStatus, MetricSample
from statefulspark.coordinator.history import JobHistory
from statefulspark.coordinator.query.queried_state import QueriedEntry, QueriedState, StateQuery
from statefulspark.coordinator.slots.rescale_planning import plan_rescale
from statefulspark.coordinator.slots.rescales import Rescale, RescalePlan
from statefulspark.coordinator.slots.status import SlotStatus
from statefulspark.coordinator.snapshots.savepoint_formats import MissingTable
from statefulspark.errors import ClosedError
from statefulspark.keygroups import ranges
from statefulspark.state.encoding.layout import StateInfo

START_MS = 1_790_000_000_000


def slots_of(parallelism: int, max_parallelism: int, epoch: int = 1) -> tuple[SlotStatus, ...]:
    owned = ranges(parallelism, max_parallelism)
    return tuple(
        SlotStatus(slot=i, first=r.first, last=r.last, state="RUNNING", epoch=epoch, executor="1", host="worker-7", pid=4_700 + i)
        for i, r in enumerate(owned)
    )


CART = StateInfo(
    7, "orders", "cart", "map", [{"type": "STRING"}], {"type": "MAP", "key": {"type": "STRING"}, "value": {"type": "LONG"}}, 60_000
)


class FakeQueries:
    """Answers with the query's own texts, and fails as it is told."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.asked: list[StateQuery] = []

    def states(self) -> list[StateInfo]:
        return [CART]

    def read(self, query: StateQuery) -> QueriedState:
        self.asked.append(query)
        if self.failure is not None:
            raise self.failure
        entries = (QueriedEntry(map_key=query.map_key or "pen", value=3, expires_ms=START_MS),)
        return QueriedState(
            state=CART, key_group=5, slot=1, committed=41, entries=() if query.key == "nobody" else entries,
            next="cGVu", remarks=("the map has more entries",),
        )  # fmt: skip


class FakeJob:
    """``failures[method]`` is raised by that method; ``hold`` (an event) makes long methods wait until it is set."""

    def __init__(self, name: str = "turnaround", parallelism: int = 2, max_parallelism: int = 128) -> None:
        self.failures: dict[str, Exception] = {}
        self.queries = FakeQueries()
        self.calls: list[tuple[object, ...]] = []
        self.hold: threading.Event | None = None
        self.entered = threading.Event()
        self.samples: list[MetricSample] = []
        self.past = JobHistory()
        self.base: CheckpointMetadata | None = None
        self.silent_s = 0.0
        self.executors = True
        self.canceled: Cancellation | None = None
        self.on_wait: Callable[[FakeJob], None] = lambda _: None
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._checkpoints: list[CheckpointInfo] = []
        self._memory = MemoryStatus(
            revision=0, budget_bytes=128 << 20, managed_bytes=128 << 20, write_buffer_ratio=0.5, high_prio_pool_ratio=0.1,
            cache_bytes=111_848_106, write_buffer_bytes=44_739_242, high_prio_bytes=11_184_810, warnings=(), slots=(0, 1),
        )  # fmt: skip
        self._status = JobStatus(
            job_id=f"{name}-5f0c2a", name=name, state=JobState.RUNNING, since_ms=START_MS, parallelism=parallelism,
            max_parallelism=max_parallelism, attempt=1, batch=41, input_rows=100_000, output_rows=99_000,
            watermarks={"turnaround": 1_357_041_600_000, "carried": None}, slots=slots_of(parallelism, max_parallelism),
        )  # fmt: skip

    def change(self, **fields: object) -> None:
        with self._lock:
            self._status = replace(self._status, **fields)  # type: ignore[arg-type]  # the tests name the fields
            if self._status.state.final:
                self._ended.set()

    def status(self) -> JobStatus:
        self._fail("status")
        with self._lock:
            return self._status

    def silence_s(self) -> float:
        return self.silent_s

    def has_executors(self) -> bool:
        return self.executors

    def checkpoints(self) -> list[CheckpointInfo]:
        self._fail("checkpoints")
        return list(self._checkpoints)

    def trigger_checkpoint(self, timeout_s: float) -> CheckpointInfo:
        self._enter("trigger_checkpoint", timeout_s)
        return self._snapshot("checkpoint", "file:///state/turnaround")

    def trigger_savepoint(self, target: str | None, timeout_s: float, form: SavepointFormat = "native") -> CheckpointInfo:
        self._enter("trigger_savepoint", target, timeout_s, *(() if form == "native" else (form,)))
        return self._snapshot("savepoint", target or "file:///savepoints", form)

    def stop(
        self, *, savepoint: bool | None, target: str | None, drain: bool, timeout_s: float, form: SavepointFormat | None = None
    ) -> CheckpointInfo | None:
        self._enter("stop", savepoint, target, drain, timeout_s, *(() if form is None else (form,)))
        info = self._snapshot("checkpoint" if savepoint is False else "savepoint", target or "file:///state/turnaround", form or "native")
        self.change(state=JobState.FINISHED if drain else JobState.SUSPENDED, slots=())
        return info

    def cancel(self, *, retain: bool = False) -> None:
        self._enter("cancel", *(("retain",) if retain else ()))
        self.change(state=JobState.CANCELED, slots=(), canceled=self.canceled)

    def rescale(self, parallelism: int, timeout_s: float) -> JobStatus:
        self._enter("rescale", parallelism, timeout_s)
        done = Rescale.of(self.rescale_plan(parallelism), completed_ms=START_MS, pause_ms=3_900)
        self.change(parallelism=parallelism, slots=slots_of(parallelism, self._status.max_parallelism, epoch=2), last_rescale=done)
        return self.status()

    def rescale_plan(self, parallelism: int) -> RescalePlan:
        self._fail("rescale_plan")
        return plan_rescale(self.base, self._status.max_parallelism, self._status.parallelism, parallelism)

    def memory(self) -> MemoryStatus:
        self._fail("memory")
        return self._memory

    def tune_memory(self, change: MemoryChange, timeout_s: float) -> MemoryStatus:
        self._enter("tune_memory", change, timeout_s)
        given = {name: value for name, value in asdict(change).items() if value is not None}
        self._memory = replace(self._memory, revision=self._memory.revision + 1, **given)
        return self._memory

    def history(self) -> JobHistory:
        self._fail("history")
        return self.past

    def metrics(self) -> list[MetricSample]:
        self._fail("metrics")
        return list(self.samples)

    def wait(self, timeout_s: float | None) -> JobState:
        self.on_wait(self)
        self._ended.wait(timeout_s)
        return self._status.state

    def _snapshot(self, kind: str, folder: str, form: SavepointFormat = "native") -> CheckpointInfo:
        number = len(self._checkpoints) + 1
        info = CheckpointInfo(
            id=number, kind="savepoint" if kind == "savepoint" else "checkpoint", path=f"{folder}/{kind}-{number}", batch=41,
            completed_ms=START_MS + 1_000, duration_ms=840, sync_ms=12, size_bytes=3_000_000, uploaded_bytes=200_000,
            format=form, without_table=(MissingTable(uid="u" * 40, state="s" * 40, reason="r" * 99),) if form == "canonical" else (),
        )  # fmt: skip
        self.keep(info)
        return info

    def keep(self, info: CheckpointInfo) -> None:
        """Complete a checkpoint or savepoint."""
        self._checkpoints.append(info)
        if info.kind == "savepoint":
            self.change(last_savepoint=info)
        else:
            self.change(last_checkpoint=info)

    def _enter(self, method: str, *arguments: object) -> None:
        self.calls.append((method, *arguments))
        self.entered.set()
        if self.hold is not None:
            self.hold.wait(30)
        self._fail(method)
        if self._status.state.final and method != "cancel":
            raise ClosedError(f"job {self._status.name} has ended ({self._status.state})")

    def _fail(self, method: str) -> None:
        if error := self.failures.get(method):
            raise error
