"""The driver's clock jumps an hour or a moment, both ways: processing time never goes back, timers fire once, and nothing expires early or twice.

The model knows one rule: a batch has the latest time that any clock has shown.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from runtime.tests.depth import left_to_test_all
from structlog.testing import capture_logs

from statefulspark import KeyedProcessFunction, RuntimeContext, StateTtlConfig, Time, Types, ValueStateDescriptor
from statefulspark.testing import ADVANCE, BATCH, CHECKPOINT, DOWNTIME, KILL_DRIVER, KILL_SLOT, RESCALE, RETRY_BATCH, TestingJob

HOUR_MS = 3_600_000
TTL_MS = HOUR_MS // 2
WAIT_MS = 60_000
USERS = ("ada", "bob", "cyd")
Output = tuple[str, str, int, int]


class Fading(KeyedProcessFunction):
    """Counts the rows of each user, for half an hour after the last one, and reminds after a minute."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(TTL_MS)).build())
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        now_ms = ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(now_ms + WAIT_MS)
        count = self.count.value() or 0
        self.count.update(count + 1)
        yield value.user, "row", count, now_ms

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield ctx.get_current_key(), "timer", timestamp, ctx.timer_service().current_processing_time()


class Model:
    """Counts with their expiry, timers, and the time of the last batch."""

    def __init__(self, clock_ms: int) -> None:
        self.clock_ms = self.batch_ms = clock_ms
        self.counts: dict[str, tuple[int, int]] = {}
        self.timers: set[tuple[int, str]] = set()
        self.output: list[Output] = []

    def rows(self, users: list[str]) -> None:
        self.batch_ms = max(self.batch_ms, self.clock_ms)
        self._fire()
        for user in users:
            count, expiry_ms = self.counts.get(user, (0, 0))
            count = count if expiry_ms > self.batch_ms else 0
            self.output.append((user, "row", count, self.batch_ms))
            self.counts[user] = count + 1, self.batch_ms + TTL_MS
            self.timers.add((self.batch_ms + WAIT_MS, user))

    def look_at_clock(self) -> None:
        """Between batches a timer fires as soon as the clock has reached it."""
        if any(due_ms <= self.clock_ms for due_ms, _ in self.timers):
            self.batch_ms = max(self.batch_ms, self.clock_ms)
            self._fire()

    def _fire(self) -> None:
        due = {timer for timer in self.timers if timer[0] <= self.batch_ms}
        self.timers -= due
        self.output += [(user, "timer", due_ms, self.batch_ms) for due_ms, user in due]


def _jump(random: Random) -> int:
    return random.choice([HOUR_MS, -HOUR_MS, WAIT_MS, -WAIT_MS, WAIT_MS // 2, 1, TTL_MS, -1, 0])


@pytest.mark.parametrize(
    ("backend", "timer_service", "seed"),
    [
        ("memory", "heap", 1),
        ("filesystem", "heap", 3),
        ("rocksdb", "rocksdb", 4),
        ("rocksdb", "heap", 5),
        *left_to_test_all(
            (backend, service, seed)
            for seed in range(6, 20)
            for backend, service in (("filesystem", "heap"), ("rocksdb", "rocksdb"), ("rocksdb", "heap"))
        ),
    ],
)
def test_random_jumps_between_rows_and_failures(backend: str, timer_service: str, seed: int) -> None:
    """On every backend, with timers in RocksDB and on the heap."""
    random = Random(seed)
    with TestingJob(
        Fading(), "user STRING", "user STRING, what STRING, n BIGINT, now BIGINT", key="user", backend=backend, timer_service=timer_service
    ) as job:
        job.run([ADVANCE(10 * HOUR_MS)])
        model = Model(job._job.processing_time_ms)
        for _ in range(9):
            users = random.choices(USERS, k=random.randint(1, 3))
            event = random.choice([CHECKPOINT, RETRY_BATCH, KILL_DRIVER, KILL_SLOT(0), RESCALE(random.randint(1, 3))])
            jump_ms = random.choice([_jump(random), 0])
            model.rows(users)
            job.run([*[(user,) for user in users], event])
            model.clock_ms += jump_ms
            job._job.processing_time_ms += jump_ms
            job.run([random.choice([BATCH, DOWNTIME(0)])])
            model.look_at_clock()
        assert sorted(map(tuple, job.output)) == sorted(model.output)


def test_a_clock_that_is_behind_is_warned_of_once() -> None:
    """Otherwise timers and time to live stand still for an hour and nobody knows why. A moment is no reason."""
    columns = "user STRING, what STRING, n BIGINT, now BIGINT"
    with TestingJob(Fading(), "user STRING", columns, key="user") as job, capture_logs() as logs:
        for jump_ms in (10 * HOUR_MS, -1_000, -HOUR_MS, 0, 2 * HOUR_MS, -2 * HOUR_MS):
            job._job.processing_time_ms += jump_ms
            job.run([("ada",), BATCH])
    behind = [log["behind_s"] for log in logs if "clock is behind" in log["event"]]
    assert behind == [3_601, 7_200]
