"""Random lives of a job with two keyed inputs: its output is a join by key, whoever dies, and its watermark that of the slower input."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark import KeyedCoProcessFunction, MapStateDescriptor, RuntimeContext, Types, ValueStateDescriptor
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.process.rows.step_spec import InputSpec, StepSpec
from statefulspark.testing.inputs import SECOND

from .conftest import Start
from .test_lives import Life
from .world import DELAY_MS, KEY_GROUPS, LATER_MS, UID, Driver, World

SECOND_DELAY_MS = 25
_KEYS = 10
_ROWS = 60
_SEEDS = [("memory", 1), ("rocksdb", 0), *left_to_test_all(("memory", seed) for seed in (0, 2, 3))]

OUTPUT = pa.schema(
    [
        ("key", pa.string()),
        ("kind", pa.string()),
        ("other", pa.string()),
        ("at", pa.int64()),
        ("watermark", pa.int64()),
        ("now", pa.int64()),
    ]
)


class Latest(KeyedCoProcessFunction):
    """Emits each row with the latest row of the other input, counts the rows of each input, and sets a timer for each row of the first."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.INT(), Types.LONG()))
        self.latest = [runtime_context.get_state(ValueStateDescriptor(f"latest{number}", Types.STRING())) for number in (1, 2)]

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(value.at + LATER_MS)
        yield self._row(0, value.name, ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        assert value.id == ctx.get_current_key()
        yield self._row(1, value.name, ctx)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        yield self._result("timer", timestamp, 0, ctx)

    def _row(self, number: int, name: str, ctx: KeyedCoProcessFunction.Context) -> Any:
        self.counts.put(number, (self.counts.get(number) or 0) + 1)
        self.latest[number].update(name)
        time = ctx.timestamp()
        return self._result(name, -1 if time is None else time, 1 - number, ctx)

    def _result(self, kind: str, at: int, other: int, ctx: Any) -> tuple[Any, ...]:
        service = ctx.timer_service()
        return ctx.get_current_key(), kind, self.latest[other].value(), at, service.current_watermark(), service.current_processing_time()


def step(event_time2: str | None) -> StepSpec:
    return StepSpec(
        uid=UID,
        function=Latest(),
        input_schema=pa.schema([("at", pa.int64()), ("key", pa.string()), ("name", pa.string())]),
        output_schema=OUTPUT,
        key_columns=("key",),
        event_time="at",
        watermark_delay_ms=DELAY_MS,
        max_parallelism=KEY_GROUPS,
        second=InputSpec(
            pa.schema([("id", pa.string()), ("name", pa.string()), ("changed", pa.int64())]), ("id",), event_time2, SECOND_DELAY_MS
        ),
    )


def rows_of(chance: Random) -> list[Any]:
    """Rows of both inputs, often at equal times; now and then one of them is silent. Some rows of the second have no event time."""
    at = 0
    rows: list[Any] = []
    share = 0.5
    for number in range(_ROWS):
        at += chance.choice((0, 0, 1, 10, 30))
        if number % 10 == 0:
            share = chance.choice((0.0, 0.5, 0.5, 1.0))
        key = f"key-{chance.randrange(_KEYS)}"
        if chance.random() < share:
            rows.append(SECOND((key, f"b{number}", None if chance.random() < 0.1 else at)))
        else:
            rows.append((at, key, f"a{number}"))
    return rows


def time_of(row: Any, event_time2: str | None) -> int:
    """Event time by which a row is sorted, -1 for none."""
    if not isinstance(row, SECOND):
        return int(row[0])
    return -1 if event_time2 is None or row.row[2] is None else int(row.row[2])


def watermarks(batches: list[list[Any]], event_time2: str | None) -> list[int | None]:
    """The watermark of each batch: the smaller one of both inputs over the batches before."""
    marks: list[int | None] = []
    first: list[int] = []
    second: list[int] = []
    for rows in batches:
        ends = [max(first, default=None), max(second, default=None)]
        late = [None if end is None else end - delay for end, delay in zip(ends, (DELAY_MS, SECOND_DELAY_MS), strict=True)]
        late = late if event_time2 is not None else late[:1]
        marks.append(None if None in late else min(each for each in late if each is not None))
        first += [row[0] for row in rows if not isinstance(row, SECOND)]
        second += [row.row[2] for row in rows if isinstance(row, SECOND) and row.row[2] is not None]
    return marks


def expected_rows(batches: list[list[Any]], event_time2: str | None) -> list[tuple[str, str, str | None, int, int]]:
    """The join in plain Python: batch by batch, in each by event time, and of equal times the first input first."""
    latest: dict[tuple[str, int], str] = {}
    results = []
    for number, rows in enumerate(batches):
        for row in sorted(rows, key=lambda row: (time_of(row, event_time2), isinstance(row, SECOND))):
            second = isinstance(row, SECOND)
            key, name = (row.row[0], row.row[1]) if second else (row[1], row[2])
            latest[key, second] = name
            results.append((key, name, latest.get((key, not second)), time_of(row, event_time2), number))
    return results


def batches_of(started: dict[int, list[Any]]) -> list[list[Any]]:
    """The rows of each batch; one that was never computed had none."""
    return [started.get(batch, []) for batch in range(max(started, default=-1) + 1)]


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


@pytest.mark.parametrize("event_time2", ["changed", None])
@pytest.mark.parametrize(("world", "seed"), _SEEDS, indirect=["world"])
def test_the_output_is_the_join(world: World, start: Start, remembered: dict[int, list[Any]], seed: int, event_time2: str | None) -> None:
    """Every row sees the latest row of the other input, and every batch has the watermark of the slower input, whatever dies when."""
    chance = Random(seed)
    world.step = step(event_time2)
    World.__post_init__(world)
    world.input = rows_of(chance)
    life = Life(world, start, chance)
    life.live()
    life.finish()
    batches = batches_of(remembered)
    given = [(batch, row) for batch, rows in sorted(world.sink.items()) for row in rows]
    found = Counter((key, kind, other, at, batch) for batch, (key, kind, other, at, *_) in given if kind != "timer")
    assert found == Counter(expected_rows(batches, event_time2)), world.deaths
    timers = Counter((key, at) for _, (key, kind, _, at, *_) in given if kind == "timer")
    assert timers == Counter({(row[1], row[0] + LATER_MS) for row in world.input if not isinstance(row, SECOND)})
    marks = watermarks(batches, event_time2)
    rows_with_marks = [(batch, mark) for batch, (_, kind, _, _, mark, _) in given if kind != "timer"]
    assert rows_with_marks == [(batch, -(1 << 63) if marks[batch] is None else marks[batch]) for batch, _ in rows_with_marks], world.deaths
    counted = {(entry.key, entry.user_key): entry.value for entry in read_state(world.store.url, UID, "counts")}
    assert counted == Counter((row.row[0], 1) if isinstance(row, SECOND) else (row[1], 0) for row in world.input)
    assert verify(world.store.url).problems == ()
