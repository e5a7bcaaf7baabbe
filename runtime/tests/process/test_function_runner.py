"""KeyedFunctionRunner: what is called when, with what, and what happens when it goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from statefulspark import KeyedProcessFunction, RuntimeContext, TimeDomain, Types, ValueStateDescriptor
from statefulspark.errors import InternalError, InvalidInputError
from statefulspark.process.api.contexts import MIN_WATERMARK_MS

MakeSlot = Callable[..., Any]

LOG = pa.schema([("what", pa.string()), ("user", pa.string()), ("at", pa.int64())])
COUNT = pa.schema([("user", pa.string()), ("n", pa.int64())])


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value.user, count


class Timers(KeyedProcessFunction):
    """Registers an event-time and a processing-time timer per row, and logs every call."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        timers = ctx.timer_service()
        timers.register_event_time_timer(value.at + value.amount)
        timers.register_processing_time_timer(timers.current_processing_time() + value.amount)
        yield "row", value.user, ctx.timestamp()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[Any, ...]]:
        assert ctx.timestamp() == timestamp
        yield ctx.time_domain().name.lower(), ctx.get_current_key(), timestamp


def test_due_timers_then_rows_then_timers_that_became_due(make_slot: MakeSlot) -> None:
    """The order within a batch is the documented one, and rows of a key come in event-time order."""
    slot = make_slot(Timers(), LOG)
    assert slot.run([(2, 0, "b", 30, 100), (1, 0, "a", 20, 5), (1, 0, "a", 10, 5)], now=1000) == [
        ("row", "a", 10),
        ("row", "a", 20),
        ("row", "b", 30),
    ]
    assert slot.run([(1, 0, "a", 25, 0)], watermark=25, now=1005) == [
        ("event_time", "a", 15),
        ("event_time", "a", 25),
        ("processing_time", "a", 1005),
        ("row", "a", 25),
        ("event_time", "a", 25),
        ("processing_time", "a", 1005),
    ]
    assert slot.runner.timers_fired == 5
    assert slot.run([], watermark=1 << 60, now=1 << 60) == [("event_time", "b", 130), ("processing_time", "b", 1100)]


def test_timers_registered_by_timers_fire_until_none_is_due(make_slot: MakeSlot) -> None:
    """A chain of timers up to the watermark runs in one batch, the rest waits."""

    class Chain(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
            ctx.timer_service().register_event_time_timer(0)

        def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[Any]:
            ctx.timer_service().register_event_time_timer(timestamp + 10)
            return [("t", ctx.get_current_key(), timestamp)]

    slot = make_slot(Chain(), LOG)
    assert slot.run([(1, 0, "a", 0, 0)]) == []
    assert slot.run([], watermark=35) == [("t", "a", 0), ("t", "a", 10), ("t", "a", 20), ("t", "a", 30)]
    assert slot.run([], watermark=40) == [("t", "a", 40)]


def test_a_timer_of_one_clock_may_set_one_of_the_other_that_is_due(make_slot: MakeSlot) -> None:
    """Firing goes on over both clocks until neither has anything due."""

    class Crossing(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
            ctx.timer_service().register_processing_time_timer(5)

        def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[Any, ...]]:
            yield ctx.time_domain().name, ctx.get_current_key(), timestamp
            if timestamp == 5:
                ctx.timer_service().register_event_time_timer(7)

    slot = make_slot(Crossing(), LOG)
    slot.run([(1, 0, "a", 0, 0)])
    assert slot.run([], watermark=9, now=9) == [("PROCESSING_TIME", "a", 5), ("EVENT_TIME", "a", 7)]


def test_a_deleted_timer_does_not_fire_even_when_due_in_the_same_batch(make_slot: MakeSlot) -> None:
    """The first of two due timers deletes the second."""

    class Deleting(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
            for at in (10, 20):
                ctx.timer_service().register_event_time_timer(at)
                ctx.timer_service().register_processing_time_timer(at)

        def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[Any, ...]]:
            ctx.timer_service().delete_event_time_timer(20)
            if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
                ctx.timer_service().delete_processing_time_timer(20)
            yield ctx.time_domain().name, ctx.get_current_key(), timestamp

    slot = make_slot(Deleting(), LOG)
    slot.run([(1, 0, "a", 0, 0)])
    assert slot.run([], watermark=100, now=100) == [("EVENT_TIME", "a", 10), ("PROCESSING_TIME", "a", 10)]


def test_contexts_say_where_and_when(make_slot: MakeSlot) -> None:
    """Everything PyFlink's contexts answer is answered, with PyFlink's values."""
    seen: dict[str, Any] = {}

    class Curious(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            seen["slot"] = (
                runtime_context.get_task_name(),
                runtime_context.get_index_of_this_subtask(),
                runtime_context.get_number_of_parallel_subtasks(),
                runtime_context.get_max_number_of_parallel_subtasks(),
                runtime_context.get_attempt_number(),
                runtime_context.get_task_name_with_subtasks(),
                runtime_context.get_job_parameter("limit", "1"),
                runtime_context.get_job_parameter("other", "1"),
            )
            self.rows = runtime_context.get_metrics_group().add_group("mine").counter("rows")

        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
            self.rows.inc()
            service = ctx.timer_service()
            seen[value.user] = (ctx.get_current_key(), ctx.timestamp(), service.current_watermark(), service.current_processing_time())

        def close(self) -> None:
            seen["closed"] = True

    slot = make_slot(Curious(), LOG)
    assert seen["slot"] == ("turnaround", 1, 2, 16, 0, "turnaround (2/2)", "7", "1")
    slot.run([(1, 0, "a", None, 0)], now=5)
    slot.run([(2, 0, "b", 44, 0)], watermark=33, now=6)
    assert seen["a"] == ("a", None, MIN_WATERMARK_MS, 5)
    assert seen["b"] == ("b", 44, 33, 6)
    assert slot.runner.metrics.values() == {"mine.rows": 2}
    slot.runner.close()
    assert seen["closed"]


def test_output_comes_in_bounded_batches_as_it_is_produced(make_slot: MakeSlot) -> None:
    """No output batch exceeds its bound, though one row gives many; the generator is not drained ahead."""
    pulled = 0

    class Flood(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
            nonlocal pulled
            for n in range(25):
                pulled += 1
                yield value.user, n

    slot = make_slot(Flood(), COUNT, output_rows=10)
    slot.backend.begin_batch(0, processing_time_ms=0)
    results = slot.start([(1, 0, "a", 1, 0), (2, 0, "b", 1, 0)])
    assert next(results).num_rows == 10
    assert pulled == 10
    assert [result.num_rows for result in results] == [10, 10, 10, 10]
    assert (slot.runner.rows_in, slot.runner.rows_out) == (2, 50)


def test_large_rows_are_given_out_by_bytes(make_slot: MakeSlot) -> None:
    """Rows of 300 KB, from rows and from timers, come out a few at a time: thousands of them never lie in memory together."""
    pulled = 0

    class Flood(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
            ctx.timer_service().register_processing_time_timer(1)
            return self.on_timer(0, ctx)

        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[str, int]]:
            nonlocal pulled
            for n in range(100):
                pulled += 1
                yield "x" * 300_000, n

    slot = make_slot(Flood(), COUNT)
    slot.backend.begin_batch(0, processing_time_ms=0)
    rows = 0
    for result in slot.start([(1, 0, "a", 1, 0)], now=1):
        rows += result.num_rows
        assert result.nbytes < 9 << 20
        assert pulled == rows
    assert rows == 200


def test_tick_rows_are_ignored_and_event_time_is_tracked(make_slot: MakeSlot) -> None:
    """A row without a hash only makes Spark run a batch; the latest event time is that of real rows, per run."""
    slot = make_slot(Count(), COUNT)
    assert slot.run([(None, 0, None, 999, None), (1, 0, "a", 7, 0), (1, 0, "a", None, 0)]) == [("a", 1), ("a", 2)]
    assert (slot.runner.rows_in, slot.runner.max_event_time_ms) == (2, 7)
    slot.run([(1, 0, "a", at, 0) for at in (50, 40, 30, 20, 10)])
    assert slot.runner.max_event_time_ms == 50
    assert slot.run([(None, 0, None, 999, None)]) == []
    assert (slot.runner.rows_in, slot.runner.max_event_time_ms) == (0, None)


def test_keys_that_share_a_hash_keep_their_own_state(make_slot: MakeSlot) -> None:
    """Two keys of one 64-bit hash alternate in event-time order without touching each other's state."""
    slot = make_slot(Count(), COUNT)
    rows = [(77, 0, "ab"[n % 2], n, 0) for n in range(6)]
    assert slot.run(rows) == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3)]


def test_negative_hashes_get_key_groups_like_pmod(make_slot: MakeSlot) -> None:
    """Key groups are floor-modulo, as Spark's pmod: never negative."""
    slot = make_slot(Count(), COUNT)
    slot.run([(-1, 0, "a", 0, 0)])
    ((key, _),) = slot.changes
    assert int.from_bytes(key[:2], "big") == 15


@pytest.mark.parametrize("sort_bytes", [1, 1 << 20])
def test_several_key_columns_make_a_tuple(make_slot: MakeSlot, sort_bytes: int) -> None:
    """The key is a tuple in the order of the key columns, also when every chunk is one spilled row."""

    class Keys(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> list[Any]:
            return [(str(ctx.get_current_key()), len(ctx.get_current_key()))]

    slot = make_slot(Keys(), COUNT, key_columns=("amount", "user"), sort_bytes=sort_bytes)
    assert slot.run([(1, 0, "a", 0, 5), (2, 0, "b", 0, 6)]) == [("(5, 'a')", 2), ("(6, 'b')", 2)]


def test_a_retry_gives_the_same_output_and_changes(make_slot: MakeSlot) -> None:
    """A batch run again, after an abort or after it was finished, starts from the state of the batch before."""
    slot = make_slot(Count(), COUNT)
    first = [(n % 3, n % 2, "abc"[n % 3], -n, 0) for n in range(30)]
    second = [(n % 3, n % 2, "abc"[n % 3], n, 0) for n in range(30)]
    slot.run(first)
    wanted = slot.run(second)
    changes = slot.changes
    assert slot.run(second, batch=1) == wanted
    assert slot.changes == changes
    slot.backend.begin_batch(1, processing_time_ms=0)
    next(slot.start(second))
    slot.backend.abort_batch()
    assert slot.run(second, batch=1) == wanted
    assert slot.run([(0, 0, "a", 0, 0)]) == [("a", 21)]


@pytest.mark.parametrize(
    ("result", "wanted"), [(None, []), ([], []), ([("a", 1), ("b", 2)], [("a", 1), ("b", 2)]), (iter([("a", 1)]), [("a", 1)])]
)
def test_functions_may_return_instead_of_yield(make_slot: MakeSlot, result: Any, wanted: list[Any]) -> None:
    """None, lists and iterators of rows are all output."""

    class Returning(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
            return result

    assert make_slot(Returning(), COUNT).run([(1, 0, "x", 1, 1)]) == wanted


@pytest.mark.parametrize("result", ["text", {"user": "a", "n": 1}, ("a", 1)])
def test_a_returned_row_is_not_taken_for_rows(make_slot: MakeSlot, result: Any) -> None:
    """A row where an iterable of rows is expected must not come out in pieces."""

    class Returning(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
            return result

    with pytest.raises(InvalidInputError, match="list of"):
        make_slot(Returning(), COUNT).run([(1, 0, "x", 1, 1)])


def test_a_null_key_is_our_defect(make_slot: MakeSlot) -> None:
    """Spark refuses null keys; one that gets here must not be given state."""
    with pytest.raises(InternalError, match="null key"):
        make_slot(Count(), COUNT).run([(1, 0, None, 1, 1)])
