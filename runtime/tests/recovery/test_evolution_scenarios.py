"""What the runtime guarantees when the type of a state changes and something fails, with a model that converts all values at once.

Each row emits the number and the tag that its key's state had, so that a value which is lost, repeated, converted twice or not at all shows in the
output. The same is kept in a list, a map and operator state.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from runtime.tests.depth import left_to_test_all

from statefulspark import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from statefulspark.errors import InvalidInputError, NotRestorableError, UserFunctionError
from statefulspark.state.tables import lists
from statefulspark.testing import (
    ADVANCE,
    BATCH,
    CHECKPOINT,
    DOWNTIME,
    KILL_DRIVER,
    KILL_DRIVER_AFTER_SINK_COMMIT,
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    KILL_SLOT,
    RESCALE,
    RETRY_BATCH,
    UPGRADE,
    TestingJob,
)

INPUT, OUTPUT = "user STRING", "user STRING, number BIGINT, tag STRING"
USERS = ("ada", "bob", "cyd", "dan")
Model = dict[str, Row]


class Numbered(KeyedProcessFunction, CheckpointedFunction):
    """Numbers the rows of each user. Versions differ in the type of what they keep; odd ones tag it."""

    def __init__(self, version: int) -> None:
        self.version = version

    def open(self, runtime_context: RuntimeContext) -> None:
        type_ = TYPES[self.version % 4]
        self.last = runtime_context.get_state(ValueStateDescriptor("last", type_))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", type_))
        self.by_number = runtime_context.get_map_state(MapStateDescriptor("by number", Types.LONG(), type_))

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor("rows", TYPES[self.version % 4])
        self.rows = context.get_operator_state_store().get_list_state(descriptor)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        pass

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        last = self.last.value()
        number = last["number"] if last is not None else 0
        rows = list(self.all.get())
        assert [row["number"] for row in rows] == list(range(1, number + 1))
        assert [self.by_number.get(row["number"]) for row in rows] == rows
        row = made(self.version, number + 1)
        self.last.update(row)
        self.all.add(row)
        self.by_number.put(number + 1, row)
        self.rows.add(row)
        yield value.user, number, tag_of(last)


TYPES = [
    Types.ROW_NAMED(["number"], [Types.INT()]),
    Types.ROW_NAMED(["tag", "number"], [Types.STRING(), Types.INT()], defaults={"tag": "none"}),
    Types.ROW_NAMED(["number"], [Types.LONG()]),
    Types.ROW_NAMED(["number", "tag"], [Types.LONG(), Types.STRING()], defaults={"tag": "lost"}),
]
DEFAULTS = {1: "none", 3: "lost"}


def made(version: int, number: int) -> Row:
    names = TYPES[version % 4].get_field_names()
    return Row(**{name: number if name == "number" else f"v{version}" for name in names})


def tag_of(row: Row | None) -> str | None:
    return row["tag"] if row is not None and "tag" in row else None


def converted(row: Row, version: int) -> Row:
    """What a version makes of a row of the version before it."""
    names = TYPES[version % 4].get_field_names()
    return Row(**{name: row[name] if name in row else DEFAULTS[version % 4] for name in names})


class Oracle:
    """All rows of all users, converted at once with each upgrade."""

    def __init__(self) -> None:
        self.version = 0
        self.kept: dict[str, list[Row]] = {user: [] for user in USERS}
        self.output: list[tuple[str, int, str | None]] = []

    def row(self, user: str) -> None:
        rows = self.kept[user]
        self.output.append((user, len(rows), tag_of(rows[-1]) if rows else None))
        rows.append(made(self.version, len(rows) + 1))

    def upgrade(self, version: int) -> UPGRADE:
        self.version = version
        self.kept = {user: [converted(row, version) for row in rows] for user, rows in self.kept.items()}
        return UPGRADE(Numbered(version))

    def agrees_with(self, job: TestingJob) -> None:
        assert sorted(map(tuple, job.output), key=repr) == sorted(self.output, key=repr)
        assert job.state("last") == {user: rows[-1] for user, rows in self.kept.items() if rows}
        assert job.state("all") == {user: rows for user, rows in self.kept.items() if rows}
        assert job.state("by number") == {
            user: {index + 1: row for index, row in enumerate(rows)} for user, rows in self.kept.items() if rows
        }
        elements = [row for slot in job.operator_state("rows") for row in slot]
        assert sorted(map(repr, elements)) == sorted(repr(row) for rows in self.kept.values() for row in rows)


def _event(random: Random, slot: int) -> Any:
    killed = KILL_SLOT(slot, random.choice(["idle", "before_changelog", "before_ack", "after_ack"]))
    return random.choice(
        [
            BATCH,
            CHECKPOINT,
            RETRY_BATCH,
            KILL_DRIVER,
            KILL_DRIVER_BEFORE_SINK_COMMIT,
            KILL_DRIVER_AFTER_SINK_COMMIT,
            killed,
            RESCALE(random.randint(1, 3)),
        ]
    )


@pytest.mark.parametrize(
    ("backend", "seed"),
    [("memory", 1), *left_to_test_all((("memory", 2), ("rocksdb", 3), *(("memory", seed) for seed in range(4, 40))))],
)
def test_random_lives_with_upgrades(backend: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upgrades, and any failure between any two steps, leave what converting everything at once would leave; lists have segments of several types."""
    monkeypatch.setattr(lists, "SHORT_BYTES", 60)
    monkeypatch.setattr(lists, "TAIL_BYTES", 40)
    random = Random(seed)
    oracle = Oracle()
    with TestingJob(Numbered(0), INPUT, OUTPUT, key="user", backend=backend, parallelism=2) as job:
        for _ in range(25):
            users = random.choices(USERS, k=random.randint(1, 2))
            for user in users:
                oracle.row(user)
            upgrades = random.random() < 0.25
            event = oracle.upgrade(oracle.version + 1) if upgrades else _event(random, job.slot_of(users[0]))
            job.run([*((user,) for user in users), event])
        for user in USERS:
            oracle.row(user)
        job.run([(user,) for user in USERS])
        oracle.agrees_with(job)


def test_an_upgrade_that_is_refused_leaves_the_state() -> None:
    """The error shows both types; the old code goes on as if nothing had happened."""
    text = Types.ROW_NAMED(["number"], [Types.STRING()])

    class OfText(Numbered):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.last = runtime_context.get_state(ValueStateDescriptor("last", text))

    with TestingJob(Numbered(0), INPUT, OUTPUT, key="user") as job:
        job.run([("ada",), ("bob",), CHECKPOINT, ("ada",)])
        with pytest.raises(NotRestorableError, match=r"number  INT +number  STRING +of another kind"):
            job.run([UPGRADE(OfText(0)), ("ada",)])
        job.run([UPGRADE(Numbered(0)), ("ada",)])
        assert job.state("last") == {"ada": Row(number=3), "bob": Row(number=1)}


class Fading(KeyedProcessFunction):
    """Keeps the number of rows of each user, for a while or for ever."""

    def __init__(self, ttl_ms: int | None) -> None:
        self.ttl_ms = ttl_ms

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("count", Types.LONG())
        if self.ttl_ms is not None:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(self.ttl_ms)).build())
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        count = self.count.value() or 0
        self.count.update(count + 1)
        yield value.user, count, None


@pytest.mark.parametrize("death", [BATCH, KILL_DRIVER, KILL_SLOT(0), CHECKPOINT, RESCALE(3)])
def test_time_to_live_is_switched_on_and_off(death: Any) -> None:
    """Stored values expire one time to live after the switch, which is that of the last committed batch; what had expired stays gone."""
    with TestingJob(Fading(None), INPUT, OUTPUT, key="user", parallelism=2) as job:
        job.run([ADVANCE(1000), ("ada",), ("bob",), UPGRADE(Fading(100)), death, DOWNTIME(60), ("ada",), BATCH, death, ADVANCE(60)])
        job.run([("ada",), ("bob",)])
        assert sorted(map(tuple, job.output), key=repr) == [(user, count, None) for user, count in READ]
        # Both expire at 1220. Ada's value is prolonged in time. Cyd's first batch, at 1220, is the last one that is known to be committed.
        job.run(
            [
                ADVANCE(99),
                ("ada",),
                BATCH,
                ADVANCE(1),
                ("cyd",),
                BATCH,
                ("cyd",),
                UPGRADE(Fading(None)),
                death,
                DOWNTIME(1000),
                ("ada",),
                ("bob",),
            ]
        )
        assert job.state("count") == {"ada": 5, "bob": 1, "cyd": 2}


READ = [("ada", 0), ("ada", 1), ("ada", 2), ("bob", 0), ("bob", 0)]


def test_a_number_that_no_longer_fits_fails_its_batch() -> None:
    """The upgrade back succeeds, and the batch that reads the number fails with state and types."""

    class Counting(KeyedProcessFunction):
        def __init__(self, wide: bool) -> None:
            self.wide = wide

        def open(self, runtime_context: RuntimeContext) -> None:
            self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG() if self.wide else Types.SHORT()))

        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
            before = self.sum.value() or 0
            self.sum.update(before + (40_000 if self.wide and value.user == "ada" else 1))
            yield value.user, before, None

    with TestingJob(Counting(False), INPUT, OUTPUT, key="user") as job:
        job.run([("ada",), UPGRADE(Counting(True)), ("ada",), UPGRADE(Counting(False)), ("bob",)])
        with pytest.raises(
            (InvalidInputError, UserFunctionError), match="a value of type LONG does not fit SHORT, to which the declaration returned"
        ):
            job.run([("ada",)])
