"""Batch functions through the life of a job: slots and drivers are killed, it is rescaled, restored and upgraded."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
from runtime.tests.process.batches.test_batch_functions import INPUT, OUTPUT, BatchTotals, RowTotals

from statefulspark import BatchKeyedProcessFunction, Types, ValueStateDescriptor
from statefulspark.testing import (
    CHECKPOINT,
    FAIL_STORAGE,
    KILL_DRIVER,
    KILL_DRIVER_AFTER_SINK_COMMIT,
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    KILL_SLOT,
    RESCALE,
    RETRY_BATCH,
    SAVEPOINT,
    UPGRADE,
    TestingJob,
)

AT = datetime(1970, 1, 1)  # noqa: DTZ001
USERS = [f"user-{number}" for number in range(12)]


def rows(seed: int) -> list[Any]:
    """Rows of a batch: some users twice, some with null."""
    users = [user for number, user in enumerate(USERS) if (number * 7 + seed) % 3] * (1 + seed % 2)
    return [(user, None if (place + seed) % 5 == 0 else place * seed, AT) for place, user in enumerate(users)]


def expected(batches: list[list[Any]]) -> list[Any]:
    """What the batch function emits, with plain dicts."""
    totals: dict[str, tuple[int, int | None, int]] = {}
    emitted = []
    for batch in batches:
        for user, n, _ in batch:
            total, _, count = totals.get(user, (0, None, 0))
            totals[user] = total + (n or 0), n, count + 1
        emitted += [(user, *totals[user]) for user in dict.fromkeys(user for user, _, _ in batch)]
    return emitted


def test_a_batch_function_is_exactly_once_through_failures() -> None:
    """Each batch is interrupted in another way; output and state are those of a plain computation."""
    batches = [rows(seed) for seed in range(1, 10)]
    events: list[list[Any]] = [
        [KILL_SLOT(0)],
        [CHECKPOINT, RESCALE(3)],
        [KILL_SLOT(1, "before_ack")],
        [RETRY_BATCH],
        [KILL_DRIVER_BEFORE_SINK_COMMIT, KILL_SLOT(0)],
        [FAIL_STORAGE(1), SAVEPOINT],
        [KILL_DRIVER_AFTER_SINK_COMMIT],
        [KILL_DRIVER, RESCALE(1)],
        [],
    ]
    with TestingJob(BatchTotals(), INPUT, OUTPUT, key="user", backend="rocksdb") as job:
        output = job.run([each for batch, after in zip(batches, events, strict=True) for each in (*batch, *after)])
        assert sorted(output, key=repr) == sorted(expected(batches), key=repr)
        assert job.state("total") == {user: total for user, total, _, _ in expected(batches)}


def test_a_row_function_becomes_a_batch_function_and_back() -> None:
    """Over a savepoint and an upgrade, with all of its state."""
    batches = [rows(seed) for seed in range(1, 5)]
    with TestingJob(RowTotals(), INPUT, OUTPUT, key="user") as job:
        first = [*batches[0], SAVEPOINT, UPGRADE(BatchTotals()), *batches[1], KILL_SLOT(0), UPGRADE(RowTotals()), *batches[2]]
        output = job.run(first) + job.run([SAVEPOINT, UPGRADE(BatchTotals()), *batches[3]])
        # The row function emits after each row, and so what the batch function emits too.
        assert set(expected(batches)) <= set(output)
        assert job.state("rows") == {user: count for user, _, _, count in expected(batches)}


class Quiet(BatchKeyedProcessFunction):
    """Emits the number of rows of users once the watermark is 10 ms past their first row."""

    def open(self, runtime_context: Any) -> None:
        """Take the state."""
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_batch(self, keys: pa.Array, batch: pa.RecordBatch, ctx: BatchKeyedProcessFunction.Context) -> Any:
        del keys
        before = self.count.get_batch()
        first = batch["at"].take(pa.array(ctx.offsets()[:-1])).to_numpy()
        ctx.timer_service().register_event_time_timers(pa.array(first + 10, mask=before.is_valid().to_numpy(zero_copy_only=False)))
        self.count.put_batch(before.fill_null(0).to_numpy() + ctx.offsets()[1:] - ctx.offsets()[:-1])

    def on_timers(self, keys: pa.Array, timestamps: pa.Array, ctx: BatchKeyedProcessFunction.OnTimersContext) -> Any:
        del timestamps
        yield pa.record_batch([keys, self.count.get_batch()], schema=ctx.output_schema())
        self.count.clear()


def test_timers_of_a_batch_function_survive_failures() -> None:
    """They move with their keys when the job is rescaled, and fire once."""
    schema = {"user": pa.string(), "at": pa.int64()}
    with TestingJob(Quiet(), schema, {"user": pa.string(), "count": pa.int64()}, key="user", event_time="at") as job:
        output = job.run(
            [
                *[(user, 0) for user in USERS],
                KILL_SLOT(0),
                *[(user, 1) for user in USERS[:6]],
                SAVEPOINT,
                RESCALE(3),
                *[(user, 5) for user in USERS],
                KILL_DRIVER,
                ("other", 12),
                KILL_SLOT(1),
                ("other", 30),
            ]
        )
        assert sorted(output) == sorted([*((user, 3) for user in USERS[:6]), *((user, 2) for user in USERS[6:]), ("other", 2)])
        assert job.state("count") == {}
