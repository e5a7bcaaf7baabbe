"""Timers on the heap and in RocksDB, switched between incarnations of slots and drivers: every timer fires once, at its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.reader import read_state
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.state.encoding.entries import HEAP_TIMERS_FILE
from statefulspark.storage.open import open_store
from statefulspark.testing import (
    ADVANCE,
    CHECKPOINT,
    KILL_DRIVER_AFTER_SINK_COMMIT,
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    KILL_SLOT,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    RETRY_BATCH,
    SAVEPOINT,
    TestingJob,
)

USER = {"user": pa.string()}
FIRED = {"user": pa.string(), "at": pa.int64(), "seen": pa.int64()}
USERS = ["ada", "bob", "cy", "dee", "eve", "fay", "gil"]


class Reminders(KeyedProcessFunction):
    """Each row of a user sets two timers; each timer gives out how many rows the user has had."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.seen.update((self.seen.value() or 0) + 1)
        timers = ctx.timer_service()
        now_ms = timers.current_processing_time()
        timers.register_processing_time_timer(now_ms + 1000)
        timers.register_processing_time_timer(now_ms + 5000)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[str, int, int]]:
        yield ctx.get_current_key(), timestamp, self.seen.value() or 0


EVENTS: list[Any] = [
    CHECKPOINT,
    KILL_SLOT(0),
    RETRY_BATCH,
    CHECKPOINT,
    RESCALE(3),
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    CHECKPOINT,
    KILL_SLOT(1),
    RESCALE(1),
    KILL_DRIVER_AFTER_SINK_COMMIT,
    CHECKPOINT,
    RESCALE(2),
]


def _job(folder: Path, *, heap_timers: bool, **options: Any) -> TestingJob:
    service = "heap" if heap_timers else "rocksdb"
    options = {"backend": "rocksdb", "max_parallelism": 8, **options}
    return TestingJob(Reminders(), USER, FIRED, key="user", timer_service=service, folder=folder, **options)


@pytest.mark.parametrize("services", [[True], [True, False], [False, True, True]], ids=["heap", "switched", "mostly heap"])
def test_every_event_with_timers_on_the_heap(tmp_path: Path, services: list[bool]) -> None:
    """Rows and firing timers between any two events; each slot and driver starts with another timer service than the one before."""
    expected, rows, now_ms = Counter[tuple[str, int]](), 0, 0
    with _job(tmp_path, heap_timers=services[0]) as job:
        for event, heap_timers in zip([None, *EVENTS], cycle(services), strict=False):
            job._job.heap_timers = heap_timers
            users = [USERS[(rows + each) % len(USERS)] for each in range(3)]
            rows += 3
            # In one batch with the rows if it strikes a batch, else between them.
            job.run([*[(user,) for user in users], *([event] if event is not None else [])])
            expected.update((user, now_ms + wait_ms) for user in set(users) for wait_ms in (1000, 5000))
            job.run([ADVANCE(1500)])
            now_ms = job._job.processing_time_ms
        job.run([ADVANCE(10_000)])
    fired = Counter((user, at) for user, at, _ in job.output)
    assert set(fired) == set(expected)
    assert set(fired.values()) == {1}


def test_a_savepoint_with_heap_timers_is_complete(tmp_path: Path) -> None:
    """The timers are in a private file of their own; verified, listed, and restored with either service and other parallelism."""
    with _job(tmp_path / "one", heap_timers=True) as job:
        job.run([*[(user,) for user in USERS], SAVEPOINT])
        (savepoint,) = job.savepoints
    found = open_checkpoint(savepoint, open_store)
    assert found.store.get(found.key).startswith(b'{"format_version":14,')
    assert all(slot.heap_timers and [file.name for file in slot.private].count(HEAP_TIMERS_FILE) == 1 for slot in found.metadata.slots)
    assert verify(savepoint).problems == ()
    assert sorted(entry.key for entry in read_state(savepoint, "testing", "processing-timers")) == sorted(USERS * 2)
    for parallelism, heap_timers in ((3, True), (1, False)):
        with _job(tmp_path / str(parallelism), heap_timers=heap_timers, parallelism=parallelism, restore_from=savepoint) as job:
            job.run([ADVANCE(60_000)])
            assert Counter(user for user, _, _ in job.output) == dict.fromkeys(USERS, 2)
            job.run([("ada",), SAVEPOINT, RESTORE_FROM_SAVEPOINT(2), ADVANCE(60_000)])
            assert [user for user, _, _ in job.output].count("ada") == 4
            again = open_checkpoint(job.savepoints[0], open_store)
            assert any(slot.heap_timers for slot in again.metadata.slots) == heap_timers
