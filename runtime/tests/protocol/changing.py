"""A world whose pipeline changes from driver to driver: each may add, drop, rename and reorder keyed steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.coordinator.slots.state import LOST
from statefulspark.coordinator.snapshots.requests import SnapshotRequest
from statefulspark.errors import StatefulSparkError
from statefulspark.exchange.task import exchange_partition
from statefulspark.process.rows.step_spec import StepSpec

from .world import KEY_GROUPS, Driver, World

_ROW = pa.schema([("key", pa.string()), ("at", pa.int64())])
_OUTPUT = pa.schema([("key", pa.string()), ("n", pa.int64()), ("watermark", pa.int64())])


class Number(KeyedProcessFunction):
    """Numbers the rows of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        yield ctx.get_current_key(), number, ctx.timer_service().current_watermark()


STEP = StepSpec(
    uid="a",
    function=Number(),
    input_schema=_ROW,
    output_schema=_OUTPUT,
    key_columns=("key",),
    event_time="at",
    watermark_delay_ms=5,
    max_parallelism=KEY_GROUPS,
)


@dataclass(kw_only=True)
class ChangingWorld(World):
    """Remembers with which steps each batch reached the sink."""

    step: StepSpec = STEP
    steps: tuple[str, ...] = ("a",)
    allow_non_restored: bool = True
    upserts: bool = False
    """Whether the sink takes a batch again that it has, in place of what it has; otherwise it skips it."""
    steps_of: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Uids of the pipeline whose results of the batch the sink has."""
    rows_of: dict[int, list[Any]] = field(default_factory=dict)
    """Input rows by batch in the sink."""

    def expected(self, uid: str) -> list[tuple[str, int]]:
        """Key and count of the rows of the batches that the sink has with results of this step."""
        return sorted(Counter(key for batch, rows in self.rows_of.items() if uid in self.steps_of[batch] for key, _ in rows).items())

    def counted(self, uid: str) -> list[tuple[Any, Any]]:
        """Key and count in the newest checkpoint."""
        return sorted((entry.key, entry.value) for entry in read_state(self.store.url, uid, "number"))

    def check(self, uid: str) -> None:
        """Each row that the sink has a result of counts once in the state, and no other row does."""
        assert self.counted(uid) == self.expected(uid), (uid, self.steps_of, self.deaths)

    def check_output(self, uid: str) -> None:
        """Each row has its own number, without gaps, and the watermark never goes back."""
        results = [row for _, rows in sorted(self.sink.items()) for row in rows if row[0] == uid]
        numbers = Counter((key, number) for _, key, number, _ in results)
        assert numbers == Counter((key, number) for key, count in self.expected(uid) for number in range(1, count + 1)), (
            uid,
            self.steps_of,
        )
        watermarks = [watermark for *_, watermark in results]
        assert watermarks == sorted(watermarks, key=lambda known: -1 if known is None else known), f"the watermark of {uid} went back"


class ChangingDriver(Driver):
    """Runs all keyed steps of its pipeline, one after the other. A result is uid, key, number of the row among those of its key, and watermark."""

    world: ChangingWorld

    def __init__(self, world: ChangingWorld, steps: tuple[str, ...], parallelism: int = 2) -> None:
        world.steps = self.steps = steps
        world.step = world.all_steps()[0]  # which asks for ticks
        super().__init__(world, parallelism)

    def plan(self, rows: int, limit: int | None = None) -> int | None:
        batch = super().plan(rows, limit)
        self.start_retired()
        return batch

    def outcome(self, request: SnapshotRequest) -> CheckpointInfo | StatefulSparkError:
        self.coordinator.poll()
        self.start_retired()
        return super().outcome(request)

    def start_retired(self) -> None:
        """Start the slots again that the coordinator has retired, as the slot supervisor does."""
        for slot in self.coordinator.slots.all():
            if slot.state == LOST:
                self.start_slot(slot.index)

    def run(self, batch: int, *, deliver: bool = True, commit: bool = True, reads: int | None = None, row: bool = False, **_: Any) -> None:
        """As the engine does; the sink reads so many partitions of all steps, and perhaps one row of the next. Defaults to all."""
        world = self.world
        if world.upserts or batch not in world.sink:
            output = self.evaluate(batch) if reads is None else self._computed(batch, reads, row=row)
            if not deliver:
                return
            world.sink[batch], world.steps_of[batch], world.rows_of[batch] = output, self.steps, self.rows_of(batch)
        if commit:
            (self.location / "commits").mkdir(exist_ok=True)
            (self.location / "commits" / str(batch)).write_text("{}")

    def evaluate(self, batch: int, *, twice: bool = False) -> list[tuple[Any, ...]]:
        output = self._computed(batch, len(self.steps) * self.parallelism)
        self.check_durable()
        return output

    def _computed(self, batch: int, partitions: int, *, row: bool = False) -> list[tuple[Any, ...]]:
        """Compute so many partitions, and ask for one row of the next."""
        output: list[tuple[Any, ...]] = []
        for uid in self.steps:
            self.exchange = replace(self.exchange, uid=uid)
            self._execution += 1
            for number, rows in enumerate(self.partitions(batch)):
                if partitions > 0:
                    output += [(uid, *row) for row in self.run_task(batch, rows, number)]
                elif partitions == 0 and row:
                    results = exchange_partition(self.exchange, batch, self.task_context(number), iter([rows]))
                    output += [(uid, *part.to_pylist()[0].values()) for part in islice(results, 1)]
                    results.close()
                partitions -= 1
        return output


def finish(driver: ChangingDriver) -> None:
    """Run what is left and take a last checkpoint."""
    while (batch := driver.plan(9)) is not None:
        driver.run(batch)
    assert isinstance(driver.checkpoint(), CheckpointInfo)


def check_all(world: ChangingWorld, driver: ChangingDriver) -> None:
    """Let the driver run what is left, and compare the state of each of its steps."""
    finish(driver)
    for uid in driver.steps:
        world.check(uid)
        world.check_output(uid)
