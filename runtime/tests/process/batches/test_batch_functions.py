"""Batch functions against row functions that compute the same, in the harness: output, state and timers are equal."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from runtime.tests.depth import examples

from statefulspark import BatchKeyedProcessFunction, KeyedProcessFunction, TypeInformation, Types, ValueStateDescriptor
from statefulspark.process.batches.runner import BatchFunctionRunner
from statefulspark.state.batch_budget import BatchBudget
from statefulspark.testing import KeyedProcessHarness, process_harness
from statefulspark.testing.key_hash import KeyHash

INPUT = {"user": pa.string(), "n": pa.int64(), "at": pa.timestamp("us")}
OUTPUT = {"user": pa.string(), "total": pa.int64(), "latest": pa.int64(), "rows": pa.int64()}


class RowTotals(KeyedProcessFunction):
    """Sums and last values of a key, emitted when its last row of the batch has been seen: the oracle emits after each row."""

    def open(self, runtime_context: Any) -> None:
        """Take the states."""
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.latest = runtime_context.get_state(ValueStateDescriptor("latest", Types.LONG()))
        self.rows = runtime_context.get_state(ValueStateDescriptor("rows", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.total.update((self.total.value() or 0) + (value.n or 0))
        self.latest.update(value.n)
        self.rows.update((self.rows.value() or 0) + 1)
        yield value.user, self.total.value(), self.latest.value(), self.rows.value()


class BatchTotals(BatchKeyedProcessFunction):
    """The same with one call for many keys; emits the rows of keys after their last row."""

    def open(self, runtime_context: Any) -> None:
        """Take the states."""
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.latest = runtime_context.get_state(ValueStateDescriptor("latest", Types.LONG()))
        self.rows = runtime_context.get_state(ValueStateDescriptor("rows", Types.INT()))

    def process_batch(self, keys: pa.Array, batch: pa.RecordBatch, ctx: BatchKeyedProcessFunction.Context) -> Any:
        offsets = ctx.offsets()
        assert batch["user"].equals(keys.take(pa.array(ctx.key_numbers())))
        added = np.add.reduceat(batch["n"].fill_null(0).to_numpy(), offsets[:-1])
        total = pc.add(self.total.get_batch().fill_null(0), pa.array(added))
        latest = batch["n"].take(pa.array(offsets[1:] - 1))
        rows = pc.add(self.rows.get_batch().fill_null(0), pa.array(np.diff(offsets), pa.int32()))
        self.total.put_batch(total)
        self.latest.put_batch(latest)
        self.rows.put_batch(rows)
        yield pa.table([keys, total, latest, rows], schema=pa.schema(ctx.output_schema()).set(3, pa.field("rows", pa.int32())))


def harness(function: Any, **kwargs: Any) -> KeyedProcessHarness:
    """A harness of the totals."""
    return KeyedProcessHarness(function, INPUT, OUTPUT, key="user", event_time="at", **kwargs)


def last_of_each(rows: Iterable[Any]) -> dict[str, Any]:
    """The last row of each key, as a batch function emits it."""
    return {row.user: row for row in rows}


EARLY, LATER, LATEST = (datetime(1970, 1, 1, second=second) for second in (1, 2, 3))  # noqa: DTZ001
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "b", "ö", "d", "e"]),
        st.none() | st.integers(-(1 << 40), 1 << 40),
        st.none() | st.integers(0, 3).map(lambda ms: datetime.fromtimestamp(1_000 + ms)),  # noqa: DTZ006  as rows have them
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=examples(12, 300))
@example(  # a key goes on in the next chunk
    batches=[[("a", 1, None), ("a", 2, None), ("b", 1, None)]],
    switch=[True] * 5,
    sort_bytes=1 << 24,
    chunk_rows=1,
    dirty_bytes=1 << 24,
    collide=False,
)
@example(  # keys of one hash alternate
    batches=[[("a", 1, EARLY), ("b", 2, LATER), ("a", 3, LATEST)]],
    switch=[True] * 5,
    sort_bytes=1 << 24,
    chunk_rows=9,
    dirty_bytes=1 << 24,
    collide=True,
)
@given(
    batches=st.lists(ROWS, max_size=5),
    switch=st.lists(st.booleans(), min_size=5, max_size=5),
    sort_bytes=st.sampled_from([1, 2_000, 16 << 20]),
    chunk_rows=st.sampled_from([1, 2, 7, 32_768]),
    dirty_bytes=st.sampled_from([1, 5_000, 16 << 20]),
    collide=st.booleans(),
)
def test_a_batch_function_computes_what_a_row_function_does(
    batches: list[Any], switch: list[bool], sort_bytes: int, chunk_rows: int, dirty_bytes: int, collide: bool
) -> None:
    """Also if rows are spilled, chunks end within keys, memory is short, keys share a hash, or the job changes from one form to the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_harness, "_SORT_BYTES", sort_bytes)
        patch.setattr(process_harness, "_BUDGET", BatchBudget(cache_bytes=dirty_bytes, dirty_bytes=dirty_bytes))
        patch.setattr(BatchFunctionRunner, "_chunk_rows", chunk_rows)
        if collide:
            patch.setattr(KeyHash, "of_key", lambda _, key: len(key))
        by_rows = harness(RowTotals())
        mixed = harness(BatchTotals())
        with by_rows:
            for rows, by_batch in zip(batches, switch, strict=False):
                snapshot = mixed.snapshot() if mixed._running is not None else None
                mixed.close()
                mixed = harness(BatchTotals() if by_batch else RowTotals())
                if snapshot is not None:
                    mixed.restore(snapshot)
                mixed.open()
                by_rows.clear_output()
                by_rows.process_elements(rows)
                mixed.process_elements(rows)
                wanted = last_of_each(by_rows.get_output())
                found = mixed.get_output()
                assert last_of_each(found) == wanted
                if by_batch:
                    assert len(found) == len(wanted)
                    mixed.retry()
                    assert mixed.get_output() == found
                assert mixed.snapshot().entries == by_rows.snapshot().entries
        mixed.close()


class EchoState(BatchKeyedProcessFunction):
    """Emits what was stored before, and stores the last value of each key."""

    def __init__(self, type_: TypeInformation) -> None:
        self.type = type_

    def open(self, runtime_context: Any) -> None:
        """Take the state."""
        self.value = runtime_context.get_state(ValueStateDescriptor("value", self.type))

    def process_batch(self, keys: pa.Array, batch: pa.RecordBatch, ctx: BatchKeyedProcessFunction.Context) -> Any:
        before = self.value.get_batch()
        self.value.put_batch(batch["value"].take(pa.array(ctx.offsets()[1:] - 1)))
        return pa.record_batch([keys, before], schema=ctx.output_schema())


class EchoRows(KeyedProcessFunction):
    """The same by rows."""

    def __init__(self, type_: TypeInformation) -> None:
        self.type = type_

    def open(self, runtime_context: Any) -> None:
        """Take the state."""
        self.value = runtime_context.get_state(ValueStateDescriptor("value", self.type))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        before = self.value.value()
        self.value.update(value.value)
        yield value.key, before


KINDS: list[tuple[TypeInformation, pa.DataType, list[Any]]] = [
    (Types.LONG(), pa.int64(), [1, -(1 << 63), None]),
    (Types.INT(), pa.int32(), [1, -(1 << 31), None]),
    (Types.SHORT(), pa.int16(), [1, -5, None]),
    (Types.BYTE(), pa.int8(), [1, -128, None]),
    (Types.DOUBLE(), pa.float64(), [0.5, float("inf"), None]),
    (Types.FLOAT(), pa.float32(), [0.5, -2.25, None]),
    (Types.BOOLEAN(), pa.bool_(), [True, False, None]),
    (Types.STRING(), pa.string(), ["", "ä", None]),
    (Types.CHAR(), pa.string(), ["x", "ä", None]),
    (Types.BIG_DEC(), pa.decimal128(38, 18), [Decimal("1.5"), Decimal(-3), None]),
    (Types.SQL_DATE(), pa.date32(), [date(2026, 1, 2), date(1, 1, 1), None]),
    (Types.SQL_TIMESTAMP(), pa.timestamp("us"), [datetime(2026, 1, 2, 3), datetime(1, 1, 1), None]),  # noqa: DTZ001
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), pa.binary(), [b"", b"\x00\x01", None]),
    (Types.PRIMITIVE_ARRAY(Types.LONG()), pa.list_(pa.int64()), [[], [1, 2], None]),
    (Types.LIST(Types.STRING()), pa.list_(pa.string()), [["a"], [], None]),
    (Types.MAP(Types.STRING(), Types.LONG()), pa.map_(pa.string(), pa.int64()), [{"a": 1}, {}, None]),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), pa.struct([("f0", pa.int64()), ("f1", pa.string())]), [(1, "a"), (2, "b"), None]),
    (
        Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LIST(Types.LONG())]),
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))]),
        [(1, [2]), (None, None), None],
    ),
]


@pytest.mark.parametrize(("type_", "kind", "values"), KINDS, ids=[repr(kind[0]) for kind in KINDS])
def test_states_of_each_type_are_stored_as_by_row_functions(type_: TypeInformation, kind: pa.DataType, values: list[Any]) -> None:
    """The same bytes, and what one form has stored the other reads."""
    schema = {"key": pa.int32(), "value": kind}
    rows = list(enumerate(values))
    batch, row = (KeyedProcessHarness(make(type_), schema, schema, key="key") for make in (EchoState, EchoRows))
    with batch, row:
        for each in (batch, row):
            each.process_elements(rows)
            each.process_elements([(0, None)])
        assert sorted(batch.get_output(), key=repr) == sorted(row.get_output(), key=repr)
        snapshot = batch.snapshot()
        assert snapshot.entries == row.snapshot().entries
    for make in (EchoState, EchoRows):
        restored = KeyedProcessHarness(make(type_), schema, schema, key="key")
        restored.restore(snapshot)
        with restored:
            restored.process_elements(rows)
            assert {row.key: row.value for row in restored.get_output()} == {0: None, 1: values[1], 2: None}


@pytest.mark.parametrize(
    ("names", "kinds", "keys"),
    [
        (["key"], [pa.int32()], [(1,), (-1,), (5,)]),
        (["key"], [pa.binary()], [(b"a",), (b"",), (b"\xff",)]),
        (["key"], [pa.timestamp("us", "UTC")], [(datetime(2026, 1, day),) for day in (1, 2, 3)]),  # noqa: DTZ001
        (["key"], [pa.decimal128(10, 2)], [(Decimal("1.50"),), (Decimal("-2.00"),), (Decimal("0.00"),)]),
        (["a", "b"], [pa.string(), pa.date32()], [("x", date(2026, 1, day)) for day in (1, 2, 3)]),
    ],
    ids=["int", "binary", "timestamp", "decimal", "two columns"],
)
def test_keys_are_arrow_arrays_of_the_columns_types(names: list[str], kinds: list[pa.DataType], keys: list[Any]) -> None:
    """Of rows and of timers; several key columns are a struct."""
    wanted = kinds[0] if len(kinds) == 1 else pa.struct(list(zip(names, kinds, strict=True)))

    class Keys(BatchKeyedProcessFunction):
        def process_batch(self, keys: pa.Array, batch: pa.RecordBatch, ctx: BatchKeyedProcessFunction.Context) -> Any:
            del batch
            assert keys.type == wanted
            ctx.timer_service().register_processing_time_timers(pa.array([7] * len(keys)))
            yield pa.record_batch(keys.flatten() if len(names) > 1 else [keys], names=names)

        def on_timers(self, keys: pa.Array, timestamps: pa.Array, ctx: BatchKeyedProcessFunction.OnTimersContext) -> Any:
            del ctx
            assert keys.type == wanted
            assert timestamps.to_pylist() == [7] * len(keys)
            yield pa.record_batch(keys.flatten() if len(names) > 1 else [keys], names=names)

    schema = dict(zip(names, kinds, strict=True))
    with KeyedProcessHarness(Keys(), schema, schema, key=names) as under_test:
        under_test.process_elements(keys)
        assert sorted(under_test.get_output()) == sorted(keys)
        under_test.clear_output()
        under_test.set_processing_time(7)
        assert sorted(under_test.get_output()) == sorted(keys)


class RowTimers(KeyedProcessFunction):
    """Counts rows until a timer fires, which registers and deletes others."""

    def open(self, runtime_context: Any) -> None:
        """Take the state."""
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        ctx.timer_service().register_event_time_timer(value.n)
        if count % 3 == 0:
            ctx.timer_service().delete_event_time_timer(value.n + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        count = self.count.value() or 0
        if count % 2:
            ctx.timer_service().register_event_time_timer(timestamp + 1)
        else:
            ctx.timer_service().delete_event_time_timer(timestamp + 2)
        self.count.update(count - 1 if count > 1 else None)
        yield ctx.get_current_key(), timestamp, count, 0


class BatchTimers(BatchKeyedProcessFunction):
    """The same for many keys."""

    def open(self, runtime_context: Any) -> None:
        """Take the state."""
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_batch(self, keys: pa.Array, batch: pa.RecordBatch, ctx: BatchKeyedProcessFunction.Context) -> Any:
        del keys
        count = self.count.get_batch().fill_null(0).to_numpy().copy()
        offsets, n = ctx.offsets(), batch["n"].to_numpy()
        for place in range(int(np.diff(offsets).max())):
            here = offsets[:-1] + place < offsets[1:]
            rows = np.where(here, offsets[:-1] + place, 0)
            count += here
            ctx.timer_service().register_event_time_timers(pa.array(n[rows], mask=~here))
            ctx.timer_service().delete_event_time_timers(pa.array(n[rows] + 1, mask=~here | (count % 3 != 0)))
        self.count.put_batch(count)

    def on_timers(self, keys: pa.Array, timestamps: pa.Array, ctx: BatchKeyedProcessFunction.OnTimersContext) -> Any:
        count = self.count.get_batch().fill_null(0)
        odd = np.mod(count.to_numpy(), 2) == 1
        times = timestamps.to_numpy()
        ctx.timer_service().register_event_time_timers(pa.array(times + 1, mask=~odd))
        ctx.timer_service().delete_event_time_timers(pa.array(times + 2, mask=odd))
        left = pc.subtract(count, 1)
        self.count.put_batch(pc.if_else(pc.greater(left, 0), left, None))
        yield pa.record_batch([keys, timestamps, count, pa.array([0] * len(keys))], schema=ctx.output_schema())


@settings(deadline=None, max_examples=examples(12, 300))
@example(steps=[[("a", 3), ("a", 5), ("b", 3), ("b", 7)], 9], dirty_bytes=1 << 24)  # a key has two timers that are due
@given(
    steps=st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), max_size=12) | st.integers(0, 15), max_size=6),
    dirty_bytes=st.sampled_from([1, 16 << 20]),
)
def test_timers_fire_as_those_of_row_functions(steps: list[Any], dirty_bytes: int) -> None:
    """Of each key the same timers in the same order, although those that are due register and delete others; the same are left."""
    watermark = 0
    at = datetime(1970, 1, 1) + timedelta(seconds=1)  # noqa: DTZ001
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_harness, "_BUDGET", BatchBudget(cache_bytes=dirty_bytes, dirty_bytes=dirty_bytes))
        with harness(RowTimers()) as by_rows, harness(BatchTimers()) as by_batches:
            for step in steps:
                for each in (by_rows, by_batches):
                    if isinstance(step, int):
                        each.process_watermark(max(watermark, step))
                    else:
                        each.process_elements([(key, n, at) for key, n in step])
                watermark = max(watermark, step) if isinstance(step, int) else watermark
                for key in "abc":
                    of_key = [[row for row in each.get_output() if row.user == key] for each in (by_rows, by_batches)]
                    assert of_key[0] == of_key[1]
                assert by_rows.snapshot().entries == by_batches.snapshot().entries
