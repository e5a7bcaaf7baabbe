"""Random lives of a job with broadcast state: each row sees the rules as of its batch, whatever dies and is rescaled when, and all copies are equal."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark import KeyedBroadcastProcessFunction, MapStateDescriptor, RuntimeContext, Types, ValueStateDescriptor
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import UnavailableError
from statefulspark.process.rows.step_spec import InputSpec, StepSpec
from statefulspark.testing.inputs import BROADCAST

from .conftest import Start
from .test_lives import Life
from .test_two_input_lives import batches_of
from .world import DELAY_MS, KEY_GROUPS, LATER_MS, UID, Driver, World

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
APPLIED = MapStateDescriptor("applied", Types.STRING(), Types.LONG())
COUNT = ValueStateDescriptor("count", Types.LONG())
RESET = "reset"
_KEYS = 10
_ROWS = 60

Rules = dict[str, int | None]

OUTPUT = pa.schema(
    [
        ("key", pa.string()),
        ("kind", pa.string()),
        ("number", pa.int64()),
        ("rules", pa.string()),
        ("at", pa.int64()),
        ("watermark", pa.int64()),
        ("now", pa.int64()),
    ]
)


class Follow(KeyedBroadcastProcessFunction):
    """Numbers the rows of a key since the last reset, and emits all rules with each row and timer. The first slot emits the rules themselves."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.is_first = runtime_context.get_index_of_this_subtask() == 0

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        ctx.timer_service().register_event_time_timer(value.at + LATER_MS)
        yield self._result(ctx.get_current_key(), "row", number, value.at, ctx)

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
        rules, applied = ctx.get_broadcast_state(RULES), ctx.get_broadcast_state(APPLIED)
        number = (applied.get("number") or 0) + 1
        applied.put("number", number)
        if value.name == RESET:
            ctx.apply_to_keyed_state(COUNT, lambda _, state: state.clear() if value.n else state.update(0))
        elif value.gone:
            rules.remove(value.name)
        else:
            rules.put(value.name, value.n)
        if self.is_first:
            yield self._result(value.name, "rule", number, value.at, ctx)

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Any:
        yield self._result(ctx.get_current_key(), "timer", 0, timestamp, ctx)

    def _result(self, key: str, kind: str, number: int, at: int, ctx: Any) -> tuple[Any, ...]:
        rules = as_text(dict(ctx.get_broadcast_state(RULES).items()))
        return key, kind, number, rules, at, ctx.current_watermark(), ctx.current_processing_time()


def as_text(rules: Rules) -> str:
    return ",".join(f"{name}={n}" for name, n in sorted(rules.items()))


def step(event_time: str | None) -> StepSpec:
    return StepSpec(
        uid=UID,
        function=Follow(),
        input_schema=pa.schema([("at", pa.int64()), ("key", pa.string())]),
        output_schema=OUTPUT,
        key_columns=("key",),
        event_time="at",
        watermark_delay_ms=DELAY_MS,
        max_parallelism=KEY_GROUPS,
        second=InputSpec(
            pa.schema([("name", pa.string()), ("n", pa.int64()), ("gone", pa.bool_()), ("at", pa.int64())]), (), event_time, DELAY_MS
        ),
        broadcast=(RULES, APPLIED),
    )


def rows_of(chance: Random) -> list[Any]:
    """Rows and rules in turns: rules alone, deleted and added again, of equal and of decreasing times, with None as their value."""
    at = 0
    rows: list[Any] = []
    share = 0.0
    for number in range(_ROWS):
        at += chance.choice((0, 1, 10, 30))
        if number % 8 == 0:
            share = chance.choice((0.0, 0.3, 0.5, 1.0))
        if chance.random() < share:
            name = chance.choice((RESET, "a", "b", "c", "d"))
            value = chance.choice((None, number, number))
            rows.append(BROADCAST((name, value, chance.random() < 0.3, at - chance.choice((0, 0, 5)))))
        else:
            rows.append((at, f"key-{chance.randrange(_KEYS)}"))
    return rows


class Oracle:
    """What the job must emit, batch by batch, in plain Python."""

    def __init__(self, batches: list[list[Any]], event_time: str | None) -> None:
        self.rules: Rules = {}
        self.applied = 0
        self.counts: dict[str, int] = {}
        self.rows: Counter[tuple[Any, ...]] = Counter()
        """Batch, key, kind, number, rules, event time."""
        self.before: list[str] = []
        """The rules before each batch, which its timers see."""
        for batch, rows in enumerate(batches):
            self.before.append(as_text(self.rules))
            changes = [row.row for row in rows if isinstance(row, BROADCAST)]
            for change in sorted(changes, key=lambda row: row[3]) if event_time is not None else changes:
                self._change(batch, *change)
            for at, key in sorted((row for row in rows if not isinstance(row, BROADCAST)), key=lambda row: row[0]):
                self.counts[key] = self.counts.get(key, 0) + 1
                self.rows[batch, key, "row", self.counts[key], as_text(self.rules), at] += 1

    def _change(self, batch: int, name: str, n: int | None, gone: bool, at: int) -> None:
        self.applied += 1
        if name == RESET:
            self.counts = {}
        elif gone:
            self.rules.pop(name, None)
        else:
            self.rules[name] = n
        self.rows[batch, name, "rule", self.applied, as_text(self.rules), at] += 1


def copies(driver: Driver) -> list[tuple[Rules, dict[str, int]]]:
    """The broadcast state of each slot."""
    states = [service.keyed_steps[UID].operator.broadcast for _, service in sorted(driver.slots.items())]
    return [(dict(state.read_only(RULES).items()), dict(state.read_only(APPLIED).items())) for state in states]


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[Any]]:
    """Rows by batch, as the drivers ran them."""
    rows: dict[int, list[Any]] = {}
    partitions = Driver.partitions

    def remember(self: Driver, batch: int) -> Any:
        rows[batch] = self.rows_of(batch)
        return partitions(self, batch)

    monkeypatch.setattr(Driver, "partitions", remember)
    return rows


def check(world: World, started: dict[int, list[Any]], event_time: str | None) -> Oracle:
    """The sink has what the oracle says."""
    batches = batches_of(started)
    oracle = Oracle(batches, event_time)
    given = [(batch, *row[:5]) for batch, rows in sorted(world.sink.items()) for row in rows]
    assert Counter(row for row in given if row[2] != "timer") == oracle.rows, world.deaths
    timers = [row for row in given if row[2] == "timer"]
    wanted = {(row[1], row[0] + LATER_MS) for row in world.input if not isinstance(row, BROADCAST)}
    assert Counter((key, at) for _, key, _, _, _, at in timers) == Counter(wanted), world.deaths
    assert [(batch, rules) for batch, _, _, _, rules, _ in timers] == [
        (batch, oracle.before[batch] if batch < len(oracle.before) else as_text(oracle.rules)) for batch, *_ in timers
    ], world.deaths
    return oracle


@pytest.mark.parametrize("event_time", ["at", None])
@pytest.mark.parametrize(
    ("world", "seed"),
    [
        ("memory", 1),
        ("rocksdb", 0),
        *left_to_test_all(("memory", seed) for seed in (0, *range(2, 8))),
        *left_to_test_all([("rocksdb", 1)]),
    ],
    indirect=["world"],
)
def test_each_row_sees_the_rules_of_its_batch(
    world: World, start: Start, remembered: dict[int, list[Any]], seed: int, event_time: str | None
) -> None:
    """Whatever dies when: rows and timers see the rules of a plain dict, and every slot of every parallelism has that dict in the end."""
    chance = Random(seed)
    world.step = step(event_time)
    World.__post_init__(world)
    world.input = rows_of(chance)
    life = Life(world, start, chance)
    life.live()
    life.finish()
    oracle = check(world, remembered, event_time)
    wanted = (oracle.rules, {"number": oracle.applied} if oracle.applied else {})
    assert copies(life.driver) == [wanted] * life.driver.parallelism, world.deaths
    assert verify(world.store.url).problems == ()
    life.driver.close()
    # From the last checkpoint, also to more slots than wrote it, and between running slots.
    for parallelism in (1, 3, 2):
        driver = start(parallelism)
        assert copies(driver) == [wanted] * parallelism
        driver.rescale(4 - parallelism)
        assert copies(driver) == [wanted] * (4 - parallelism)
        assert isinstance(driver.checkpoint(), CheckpointInfo)
        driver.close()


def reordered(monkeypatch: pytest.MonkeyPatch, slots: set[int]) -> None:
    """Let these slots get the rules of every batch in reverse, as when Spark computes a partition again in another order."""
    batch_of = World.batch_of

    def reverse(self: World, rows: Any, slot: int = 0) -> pa.RecordBatch:
        return batch_of(self, rows[::-1] if slot in slots else rows, slot)

    monkeypatch.setattr(World, "batch_of", reverse)


@pytest.mark.parametrize("world", ["memory"], indirect=True)
@pytest.mark.parametrize("reads", [None, 1])
def test_slots_that_got_rules_in_other_orders_repeat_the_batch(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch, reads: int | None
) -> None:
    """The batch fails, and its rerun passes in the other order, also if the sink then reads a part of it; no copy has the first order."""
    world.step = step(None)
    World.__post_init__(world)
    world.input = [BROADCAST(("a", 1, False, 0)), BROADCAST(("a", 2, False, 0)), *[(0, f"key-{number}") for number in range(8)]]
    driver = start(3)
    batch = driver.plan(20)
    assert batch is not None
    with monkeypatch.context() as patch:
        reordered(patch, {2})
        with pytest.raises(UnavailableError, match=rf"uid '{UID}' in different orders in batch 0\. Read the stream from its source"):
            driver.run(batch)
    with monkeypatch.context() as patch:
        reordered(patch, {0, 1, 2})
        driver.coordinator.query.before_start()
        world.seen = {}
        driver.run(batch, reads=reads)
        driver.complete()
    world.input += [(1, "key-1")]
    after = driver.plan(20)
    assert after == batch + 1
    driver.run(after)
    assert copies(driver) == [({"a": 1}, {"number": 2})] * 3
    driver.rescale(2)
    assert copies(driver) == [({"a": 1}, {"number": 2})] * 2
