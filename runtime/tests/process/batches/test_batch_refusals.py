"""Mistakes in batch functions: each error names the step or the state, and the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statefulspark import (
    BatchKeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from statefulspark.errors import InvalidInputError, UserFunctionError
from statefulspark.process.api.co_functions import check_function
from statefulspark.testing import KeyedProcessHarness

SCHEMA = {"user": pa.string(), "n": pa.int64()}
OUTPUT = pa.schema([pa.field("user", pa.string(), nullable=False), ("n", pa.int64())])


class Calls(BatchKeyedProcessFunction):
    """Runs a test's code in its methods."""

    def __init__(self, process: Any = None, opened: Any = None) -> None:
        self.process = process
        self.opened = opened

    def open(self, runtime_context: Any) -> None:
        """Take a state."""
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.INT()))
        if self.opened is not None:
            self.opened(runtime_context)

    def process_batch(self, keys: pa.Array, batch: pa.RecordBatch, ctx: BatchKeyedProcessFunction.Context) -> Any:
        return self.process(self, keys, batch, ctx)


def run(process: Any, rows: Any = (("a", 1), ("b", 2))) -> list[Any]:
    """Run one batch."""
    with KeyedProcessHarness(Calls(process), SCHEMA, OUTPUT, key="user") as harness:
        harness.process_elements(rows)
        return harness.get_output()


def record(users: Any, n: Any, **others: Any) -> pa.RecordBatch:
    """A record batch of these columns."""
    return pa.record_batch({"user": users, "n": n, **others})


@pytest.mark.parametrize(
    ("produced", "message"),
    [
        ([("a", 1)], "process_batch of the step 'harness' yielded a tuple. Yield a pyarrow RecordBatch or Table"),
        ([{"user": "a"}], "process_batch of the step 'harness' yielded a dict"),
        (7, "process_batch of the step 'harness' returned an int"),
        ({"user": ["a"]}, "process_batch of the step 'harness' returned a dict"),
        (pa.record_batch({"user": ["a"]}), "the step 'harness' produced the columns user, and its output has user, n. Yield exactly"),
        (record(["a"], [1], more=[2]), "produced the columns user, n, more, and its output has user, n"),
        (record(["a"], [1.5]), "the step 'harness' produced values of type double for int64 in column 'n'. Cast the column"),
        (record(["a"], pa.array([1 << 63], pa.uint64())), "produced values of type uint64 that int64 cannot hold in column 'n'"),
        (record([b"a"], [1]), "values of type binary for string in column 'user'"),
        (record([None], [1]), "produced null for column 'user', which is not nullable"),
    ],
)
def test_output_that_does_not_fit_is_refused(produced: Any, message: str) -> None:
    """By the step, the column, and what was found; nothing is cast that would lose something."""
    with pytest.raises(InvalidInputError) as caught:
        run(lambda *_: produced)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "produced",
    [
        record(["a"], pa.array([1], pa.int16())),
        record(pa.array(["a"], pa.large_string()), pa.array([1])),
        record(pa.array(["a"]).dictionary_encode(), [1]),
        pa.table({"n": [1], "user": ["a"]}),
        [pa.table({"n": pa.chunked_array([[1], []]), "user": pa.chunked_array([["a"], []])})],
    ],
)
def test_output_that_loses_nothing_is_cast(produced: Any) -> None:
    """Columns by name in any order, and types of the same kind."""
    assert run(lambda *_: produced) == [("a", 1)]


def test_large_output_is_split_and_small_output_joined() -> None:
    """A slot sends record batches of a good size, whatever the function yields."""
    sizes: list[int] = []
    with KeyedProcessHarness(
        Calls(lambda *_: (record(["a"] * n, range(n)) for n in (25_000, 1, 1, 0, 9_000))), SCHEMA, OUTPUT, key="user"
    ) as harness:
        runner = harness._opened().function.runner
        runner_flush = runner._flush

        def flush() -> pa.RecordBatch:
            batch = runner_flush()
            sizes.append(batch.num_rows)
            return batch

        runner._flush = flush  # type: ignore[method-assign]
        harness.process_elements([("a", 1)])
        assert len(harness.get_output()) == 34_002
    assert sizes == [10_000, 10_000, 5_002, 9_000]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([1]), "state 'total' of uid 'harness': put_batch got 1 values for 2 keys. Pass one value per key"),
        (pa.array([1.5, 2.0]), "state 'total' of uid 'harness': put_batch got values of type double for int32"),
        (pa.array([1, 1 << 40]), "put_batch got values of type int64 that int32 cannot hold. Cast the array to int32"),
        (["a", object()], "state 'total' of uid 'harness': put_batch got list, which is no array of values"),
        (5, "put_batch got int, which is no array of values"),
    ],
)
def test_values_that_do_not_fit_a_state_are_refused(values: Any, message: str) -> None:
    """By the state and the step."""
    with pytest.raises(InvalidInputError) as caught:
        run(lambda function, *_: function.total.put_batch(values))
    assert message in str(caught.value)


def test_a_state_takes_numpy_arrays_and_chunks() -> None:
    """What kernels return."""

    def process(function: Calls, keys: pa.Array, *_: Any) -> Any:
        function.total.put_batch(np.array([1, 2]))
        function.total.put_batch(pa.chunked_array([[3], [4]]))
        yield pa.record_batch([keys, function.total.get_batch().cast(pa.int64())], schema=OUTPUT)
        function.total.clear()
        yield record(keys, function.total.get_batch().cast(pa.int64()))

    output = run(process)
    assert [row.n for row in output] == [3, 4, None, None]
    assert output[0].user == output[2].user != output[1].user == output[3].user


@pytest.mark.parametrize(
    ("opened", "message"),
    [
        (
            lambda ctx: ctx.get_list_state(ListStateDescriptor("l", Types.LONG())),
            "state 'l' of uid 'harness': get_list_state is not available",
        ),
        (lambda ctx: ctx.get_map_state(MapStateDescriptor("m", Types.LONG(), Types.LONG())), "value states only. Declare a ValueState"),
        (
            lambda ctx: ctx.get_state(ValueStateDescriptor("p", Types.PICKLED_BYTE_ARRAY())),
            "state 'p' of uid 'harness': Types.PICKLED_BYTE_ARRAY() has no Arrow type",
        ),
        (lambda ctx: ctx.get_state(ValueStateDescriptor("i", Types.LIST(Types.INSTANT()))), "Types.INSTANT() has no Arrow type"),
        (lambda ctx: ctx.get_current_key_group_index(), "uid 'harness': a batch function has no current key"),
    ],
)
def test_states_that_batch_functions_cannot_have_are_refused(opened: Any, message: str) -> None:
    """When the function is opened, by the state and the step."""
    with pytest.raises(InvalidInputError) as caught, KeyedProcessHarness(Calls(None, opened), SCHEMA, OUTPUT, key="user"):
        pass
    assert message in str(caught.value)


def test_time_to_live_is_refused() -> None:
    """By the state and the step, when the function is opened."""
    descriptor = ValueStateDescriptor("t", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    with (
        pytest.raises(InvalidInputError, match=r"state 't' of uid 'harness': time to live is not available to batch functions"),
        KeyedProcessHarness(Calls(None, lambda ctx: ctx.get_state(descriptor)), SCHEMA, OUTPUT, key="user"),
    ):
        pass


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (lambda function, *_: function.total.value(), r"value\(\) is for one key, and a batch function has many. Use get_batch\(\)"),
        (lambda function, *_: function.total.update(1), r"Use put_batch\(\)"),
        (
            lambda _f, _k, _b, ctx: ctx.timer_service().register_event_time_timers([1, 2]),
            "'harness' registers event-time timers but has no",
        ),
        (lambda _f, _k, _b, ctx: ctx.timer_service().register_processing_time_timers([1]), "step 'harness' are 1 for 2 keys"),
        (lambda _f, _k, _b, ctx: ctx.timer_service().delete_processing_time_timers([1.5, 2]), "step 'harness' are no whole numbers"),
    ],
)
def test_calls_for_one_key_or_another_number_of_keys_are_refused(process: Any, message: str) -> None:
    """By the step and the remedy."""
    with pytest.raises(InvalidInputError, match=message):
        run(process)


def test_state_is_not_used_between_calls() -> None:
    """There are no keys then."""
    with (
        pytest.raises(InvalidInputError, match="state 'x' of uid 'harness': there are no current keys"),
        KeyedProcessHarness(
            Calls(None, lambda ctx: ctx.get_state(ValueStateDescriptor("x", Types.INT())).clear()), SCHEMA, OUTPUT, key="user"
        ),
    ):
        pass


def test_an_error_of_the_function_is_told_as_that_of_a_row_function() -> None:
    """With its own traceback, and the batch is undone."""

    def process(function: Calls, keys: pa.Array, *_: Any) -> Any:
        function.total.put_batch([1] * len(keys))
        raise ValueError("mine")

    with KeyedProcessHarness(Calls(process), SCHEMA, OUTPUT, key="user") as harness:
        before = harness.snapshot()
        with pytest.raises(UserFunctionError, match="the function raised ValueError"):
            harness.process_elements([("a", 1)])
        assert harness.snapshot() == before


def test_batch_functions_have_one_input_and_one_output() -> None:
    """A step with two inputs, or with side outputs, refuses them when it is built."""
    with pytest.raises(InvalidInputError, match="has a batch function, which has one output"):
        KeyedProcessHarness(Calls(), SCHEMA, OUTPUT, key="user", side_outputs=[OutputTag("late", "n BIGINT")])
    with pytest.raises(InvalidInputError, match=r"is Calls, a BatchKeyedProcessFunction, and the step has two inputs") as caught:
        check_function(Calls(), inputs=2, field="func")
    assert "Derive it from a KeyedCoProcessFunction" in str(caught.value)
