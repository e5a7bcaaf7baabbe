"""The world of a random life: a local job in which the test chooses who dies at which named point of the protocol.

What dies here dies by an error raised at one of those points, in a thread instead of a process, so a life of a job with dozens of
deaths takes a second. `statefulspark.testing.local_driver` is the engine; this adds deaths, outages, partial reads and checks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from statefulspark import KeyedProcessFunction, RuntimeContext, StateTtlConfig, Time, Types, ValueStateDescriptor
from statefulspark.checkpoint.formats.records import BatchRecord
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.checkpoint.lineage.lineage import write_record
from statefulspark.coordinator.batches.changelogs import BatchChangelogs
from statefulspark.coordinator.batches.event_times import Delays
from statefulspark.errors import StatefulSparkError, UnavailableError
from statefulspark.exchange.task import exchange_partition
from statefulspark.keygroups import key_group_range
from statefulspark.process.api.co_functions import StepFunction
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.rpc.messages.batches import Acknowledge
from statefulspark.storage.base import ObjectStore
from statefulspark.testing.local_driver import LocalDriver
from statefulspark.testing.local_job import LocalJob

UID = "count"
KEY_GROUPS = 8
DELAY_MS = 5
LATER_MS = 40
TTL_MS = 20_000
"""A few batches: each look at the clock is a second later."""

Row = tuple[str, int]
"""Key and event time."""
OUTPUT = pa.schema([("key", pa.string()), ("kind", pa.string()), ("n", pa.int64()), ("watermark", pa.int64()), ("now", pa.int64())])
_ROW = pa.schema([("key", pa.string()), ("at", pa.int64())])
PUT_CHANGELOGS = BatchChangelogs.put
INLINE_BYTES = (0, 1100, 1 << 20)
"""Sizes up to which drivers store changelogs: none, some and all of those here."""


class Died(Exception):  # noqa: N818  not an error: it is what the test wants
    """Whoever reached this point is gone."""


class Count(KeyedProcessFunction):
    """Numbers the rows of a key, and sets a timer for each. What it gives out names the parameters of the batch too.

    It keeps the numbers in an attribute beside the state, as users' caches do: one that outlives an undone batch gives wrong numbers.
    A state that expires must be there exactly as long as one that does not says it should.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))
        self.cached: dict[str, int] = {}
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))
        recent = ValueStateDescriptor("recent", Types.LONG())
        recent.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(TTL_MS)).build())
        self.recent = runtime_context.get_state(recent)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        key = ctx.get_current_key()
        number = (self.cached.get(key) or self.number.value() or 0) + 1
        self.cached[key] = number
        self.number.update(number)
        self._see(ctx.timer_service().current_processing_time())
        ctx.timer_service().register_event_time_timer(value.at + LATER_MS)
        yield self._result(ctx, "row", number)

    def _see(self, now_ms: int) -> None:
        last = self.last.value()
        living = None if last is None or last + TTL_MS <= now_ms else last
        assert self.recent.value() == living, "what expires was there too long, or not long enough"
        self.last.update(now_ms)
        self.recent.update(now_ms)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield self._result(ctx, "timer", timestamp)

    def _result(self, ctx: Any, kind: str, number: int) -> tuple[Any, ...]:
        service = ctx.timer_service()
        return ctx.get_current_key(), kind, number, service.current_watermark(), service.current_processing_time()


STEP = StepSpec(
    uid=UID,
    function=Count(),
    input_schema=_ROW,
    output_schema=OUTPUT,
    key_columns=("key",),
    event_time="at",
    watermark_delay_ms=DELAY_MS,
    max_parallelism=KEY_GROUPS,
)


@dataclass(kw_only=True)
class World(LocalJob):
    """What outlives every driver, and who is to die next, at which point."""

    step: StepSpec = STEP
    seen: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    """What each batch gave out the first time it ran to its end."""
    doomed: str | None = None
    spared: int = 0
    """How many of those who reach the point live on before that."""
    deaths: list[str] = field(default_factory=list)
    clock_s: float = 1_000_000.0
    steps: tuple[str, ...] = (UID,)
    """Uids of the keyed steps. Drivers run the first one only, unless a test lets them run all."""
    outages: list[str] = field(default_factory=list)
    """What becomes of the next writes of batch records: ``lost``, or ``unanswered`` although they were made."""
    changelog_outages: list[str] = field(default_factory=list)
    """The same of the next objects with changelogs that the driver writes."""
    failed_changelogs: int = 0
    """Writes that failed by these."""

    @property
    def function(self) -> StepFunction:
        """The code of the job, for drivers that start from now on."""
        return self.step.function

    @function.setter
    def function(self, function: StepFunction) -> None:
        self.step = replace(self.step, function=function)

    def delays_ms(self) -> dict[str, Delays]:
        return dict.fromkeys(self.steps, self.step.delays_ms)

    def all_steps(self) -> list[StepSpec]:
        return [replace(self.step, uid=uid) for uid in self.steps]

    def reach(self, point: str) -> None:
        """Stands for `failpoints.reach`."""
        if point == self.doomed and self.spared:
            self.spared -= 1
        elif point == self.doomed:
            self.doomed = None
            self.deaths.append(point)
            raise Died(point)

    def write_record(self, store: ObjectStore, record: BatchRecord, check_fence: Callable[[], None]) -> str:
        """Stands for `lineage.write_record`."""
        outage = self.outages.pop(0) if self.outages else None
        if outage == "lost":
            raise UnavailableError("503")
        key = write_record(store, record, check_fence)
        if outage == "unanswered":
            raise UnavailableError("no answer")
        return key

    def put_changelogs(self, changelogs: BatchChangelogs, batch: int, data: bytes, *, of: tuple[str, int, int] | None) -> str:
        """Stands for `BatchChangelogs.put`."""
        outage = self.changelog_outages.pop(0) if self.changelog_outages else None
        self.failed_changelogs += outage is not None
        if outage == "lost":
            raise UnavailableError("503")
        key = PUT_CHANGELOGS(changelogs, batch, data, of=of)
        if outage == "unanswered":
            raise UnavailableError("no answer")
        return key

    def inline_up_to(self, size_bytes: int) -> None:
        """Let drivers that start from now on store changelogs of this size, many in one object; 0 for none."""
        self.inline_limits = replace(self.inline_limits, changelog_bytes=size_bytes)

    def now_ms(self) -> int:
        """Each look at the clock is a second later."""
        self.clock_s += 1.0
        return int(self.clock_s * 1000)

    def clock(self) -> SimpleNamespace:
        """Stands for the module `time` of the schedule of checkpoints and of the fence."""
        return SimpleNamespace(time=lambda: self.now_ms() / 1000, monotonic=time.monotonic, sleep=time.sleep)


class Driver(LocalDriver):
    """One attempt, whose slots and tasks die when the world says so."""

    def __init__(self, world: World, parallelism: int, origin: str | None = None) -> None:
        self.world = world
        self.leaves_out = False
        """Whether the query never computes its last partition, not even without its sink."""
        self._reads: int | None = None
        self._deaths = 0
        super().__init__(world, parallelism, origin)
        actions = self.coordinator._service._service._actions
        self._take_acknowledgement = actions[Acknowledge.__name__].run
        actions[Acknowledge.__name__] = Acknowledge.served_by(self._acknowledged)

    def _acknowledged(self, ack: Acknowledge) -> None:
        """What is acknowledged is durable, or the driver makes it durable, whatever happens next."""
        if ack.changelog is not None:
            assert self.world.store.head(ack.changelog.key) is not None, "a changelog was acknowledged before it was durable"
        else:
            assert self.world.at_least_once or ack.inline is not None, "a changelog was left out"
        self._take_acknowledgement(ack)

    def check_durable(self) -> None:
        """Once the sink has read everything, all changelogs of the batch are durable."""
        coordinator = self.coordinator
        with coordinator._lock:
            current, acks = coordinator._batches.current, list(coordinator._batches.acknowledgements.values())
            if current is None or not current.with_changelogs or coordinator._inbox.life.open_steps:
                return
        for ack in acks:
            assert ack.changelog is not None, "the sink has all rows, and a changelog is not durable"
            assert self.world.store.head(ack.changelog.key) is not None

    def check_stores(self) -> None:
        """No slot holds a key of another one, which would come back to life when slots are merged."""
        for index, service in self.slots.items():
            owned = key_group_range(index, self.parallelism, KEY_GROUPS)
            held = {int.from_bytes(key[:2], "big") for key, _ in service.store.scan(b"", b"\xff" * 9)}
            assert all(group in owned for group in held), f"slot {index} holds key groups {held}"

    def run(
        self,
        batch: int,
        *,
        deliver: bool = True,
        commit: bool = True,
        twice: bool = False,
        side_outputs: bool = True,
        reads: int | None = None,
    ) -> None:
        """As the engine does; the sink reads so many partitions, and one row of the next. Defaults to all."""
        self._reads = reads
        try:
            super().run(batch, deliver=deliver, commit=commit, twice=twice, side_outputs=side_outputs)
        finally:
            self._reads = None

    def dry_run(self, batch: int) -> None:
        if self.leaves_out:
            # Not one row of the last partition: its slot would process the whole of a small one before it notices that nobody reads.
            self._execution += 1
            for number, each in enumerate(list(self.partitions(batch))[:-1]):
                self.run_task(batch, each, number)
        else:
            super().dry_run(batch)

    def evaluate(self, batch: int, *, twice: bool = False) -> list[tuple[Any, ...]]:
        if self._reads is not None:
            return self._read_in_part(batch, self._reads)
        given = super().evaluate(batch, twice=twice)
        self.check_durable()
        assert self.world.seen.setdefault(batch, sorted(given)) == sorted(given), f"batch {batch} gave out something else this time"
        return given

    def _read_in_part(self, batch: int, reads: int) -> list[tuple[Any, ...]]:
        """As `take` and `isEmpty` do."""
        self._execution += 1
        partitions = list(self.partitions(batch))
        given = [row for number, each in enumerate(partitions[:reads]) for row in self.run_task(batch, each, number)]
        for each in partitions[reads : reads + 1]:
            results = exchange_partition(self.exchange, batch, self.task_context(reads), iter([each]))
            self._deaths = len(self.world.deaths)
            try:
                given += [tuple(part.to_pylist()[0].values()) for part in islice(results, 1)]
            except StatefulSparkError as error:
                self.recover(error, self.slot_of_rows(each))
            results.close()
        return given

    def _started(self, index: int) -> bool:
        """A slot that dies before it is ready is started again."""
        try:
            return super()._started(index)
        except Died:
            return False

    def run_task(self, batch: int, rows: pa.RecordBatch, partition: int = 0, *, twice: bool = False) -> list[tuple[Any, ...]]:
        self._deaths = len(self.world.deaths)
        return super().run_task(batch, rows, partition, twice=twice)

    def recover(self, error: StatefulSparkError, slot: int) -> None:
        """Start a slot again that died in the task; a death of the driver passes through. What storage has refused is tried again."""
        if len(self.world.deaths) == self._deaths:
            if isinstance(error, UnavailableError) and self.world.failed_changelogs:
                self.world.failed_changelogs -= 1
                return
            raise error
        if self.world.deaths[-1].startswith("driver."):
            raise Died(self.world.deaths[-1]) from error
        self.start_slot(slot)
        self.coordinator.poll()
        self._deaths = len(self.world.deaths)


def state_of(world: World, name: str) -> list[tuple[Any, Any]]:
    """Key and value in the newest checkpoint."""
    return [(entry.key, entry.value) for entry in read_state(world.store.url, UID, name)]


def poll_until(true: Callable[[], bool], driver: Driver) -> None:
    """Let the driver go on between batches until something is true, for a minute at most."""
    deadline_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline_s
        driver.coordinator.poll()
        time.sleep(0.01)
