"""KeyedProcessHarness: users' tests see what a slot would do, and go on after an error."""

from __future__ import annotations

import doctest
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from statefulspark import KeyedProcessFunction, ReducingStateDescriptor, Row, RuntimeContext, Types, ValueStateDescriptor
from statefulspark.errors import ClosedError, InvalidInputError, NotRestorableError, UserFunctionError
from statefulspark.testing import KeyedProcessHarness, harness

SCHEMA = {"k": pa.string(), "at": pa.int64(), "n": pa.int64()}
OUTPUT = {"k": pa.string(), "count": pa.int64()}


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        if value.n is not None and value.n < 0:
            raise ValueError("negative")
        yield value.k, self.count.value()


def counting(**options: Any) -> KeyedProcessHarness:
    return KeyedProcessHarness(Count(), SCHEMA, OUTPUT, key="k", event_time="at", **options)


def test_the_example_in_the_documentation_runs() -> None:
    """What the docstring shows is true."""
    assert doctest.testmod(harness).attempted > 0
    assert doctest.testmod(harness).failed == 0


def test_rows_are_given_in_every_form_and_the_timestamp_goes_into_its_column() -> None:
    """Tuples with and without the event time, dicts and Rows."""
    with counting() as test:
        test.process_element(("a", 1), 1000)
        test.process_element(("a", 5, 1), 1000)
        test.process_element({"k": "a", "n": 1}, 1000)
        test.process_element(Row(n=1, k="a"), 1000)
        test.process_element(Row("b", 1000, 1))
        test.process_elements([("b", 1000, 1), ("a", None, None)])
        test.process_elements([])
        assert sorted(test.get_output()) == [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("a", 5), ("b", 1), ("b", 2)]
        test.clear_output()
        assert test.get_output() == []


def test_a_failed_element_leaves_no_state() -> None:
    """As in a job, where the batch is undone before it is tried again."""
    with counting() as test:
        test.process_element(("a", 1), 0)
        before = test.snapshot()
        with pytest.raises(UserFunctionError, match="negative"):
            test.process_element(("a", -1), 0)
        assert test.snapshot() == before
        test.process_element(("a", 1), 0)
        assert test.get_output()[-1].count == 2


def test_a_snapshot_is_restored_into_any_number_of_harnesses() -> None:
    """Restoring does not use the snapshot up, and the harness it came from goes on."""
    with counting() as test:
        test.process_element(("a", 1), 0)
        snapshot = test.snapshot()
        test.process_element(("a", 1), 0)
    for _ in range(2):
        again = counting()
        again.restore(snapshot)
        with again:
            again.process_element(("a", 1), 0)
            assert again.get_output() == [("a", 2)]


def test_misuse_is_answered_with_the_remedy() -> None:
    """Closed, restored late, time going back, rows that do not fit."""
    test = counting()
    with pytest.raises(ClosedError, match="with statement"):
        test.process_element(("a", 1), 0)
    with test:
        with pytest.raises(InvalidInputError, match="before open"):
            test.restore(test.snapshot())
        test.process_watermark(10)
        with pytest.raises(InvalidInputError, match="never goes back"):
            test.process_watermark(9)
        with pytest.raises(InvalidInputError, match="key"):
            test.process_element((None, 1), 0)
        with pytest.raises(InvalidInputError, match="the test produced a str for column 'n'"):
            test.process_element(("a", "x"), 0)
    with pytest.raises(ClosedError):
        test.snapshot()
    with KeyedProcessHarness(Count(), SCHEMA, OUTPUT, key="k") as test, pytest.raises(InvalidInputError, match="event_time=<column>"):
        test.process_element(("a", 0, 1), 0)


class Remembers(KeyedProcessFunction):
    """Counts in an attribute as well as in state."""

    def __init__(self) -> None:
        self.rows = 10

    def open(self, runtime_context: RuntimeContext) -> None:
        self.attempt = runtime_context.get_attempt_number()
        self.counted = runtime_context.get_metrics_group().counter("rows")
        self.total = runtime_context.get_reducing_state(ReducingStateDescriptor("total", self.combine, Types.LONG()))

    def combine(self, one: int, other: int) -> int:
        return one + other + 100 * self.rows

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.rows += 1
        self.counted.inc()
        self.total.add(1)
        yield self.rows, self.attempt, self.counted.get_count(), self.total.get()
        if value.n is not None and value.n < 0:
            raise ValueError("negative")


REMEMBERED = {"rows": pa.int64(), "attempt": pa.int64(), "counted": pa.int64(), "total": pa.int64()}


def remembering() -> KeyedProcessHarness:
    return KeyedProcessHarness(Remembers(), SCHEMA, REMEMBERED, key="k")


def test_attributes_do_not_survive_a_batch_that_failed() -> None:
    """The next batch runs on a fresh copy of the function: attributes, metrics and what reduces its state are new; state is as before."""
    with remembering() as test:
        test.process_element(("a", 0, 1))
        with pytest.raises(UserFunctionError):
            test.process_elements([("a", 0, 1), ("a", 0, -1)])
        test.process_elements([("a", 0, 1), ("a", 0, 1)])
        assert test.get_output() == [(11, 0, 1, 1), (11, 1, 1, 1102), (12, 1, 2, 2303)]


def test_a_retried_batch_gives_out_what_a_fresh_function_gives_out() -> None:
    """retry() is what a job does when another part of it failed after the batch was done here."""
    with remembering() as test:
        test.process_element(("a", 0, 1))
        before = test.snapshot()
        test.process_elements([("b", 0, 1), ("b", 0, 1)])
        assert test.get_output()[1:] == [(12, 0, 2, 1), (13, 0, 3, 1302)]
        test.retry()
        assert test.get_output()[1:] == [(11, 1, 1, 1), (12, 1, 2, 1202)]
        assert len(test.snapshot().entries) == len(before.entries) + 1
        with pytest.raises(InvalidInputError, match="no batch to repeat"):
            test.retry()


class Renames(Count):
    """Counts in a state of another name."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))


class Reads(Count):
    """Gives out a job parameter in the place of its count."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.limit = int(runtime_context.get_job_parameter("limit", "3"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value.k, self.limit


def test_job_parameters_are_given() -> None:
    """As the manifest of a job gives them."""
    for parameters, limit in ((None, 3), ({"limit": "7"}, 7)):
        with KeyedProcessHarness(Reads(), SCHEMA, OUTPUT, key="k", job_parameters=parameters) as test:
            test.process_element(("a", 0, 1))
            assert test.get_output() == [("a", limit)]


def test_a_function_that_renamed_its_state_is_refused() -> None:
    """The test of an upgrade finds what the job would refuse; allowed, the state starts empty."""
    with counting() as test:
        test.process_element(("a", 1), 0)
        snapshot = test.snapshot()
    renamed = KeyedProcessHarness(Renames(), SCHEMA, OUTPUT, key="k")
    renamed.restore(snapshot)
    with pytest.raises(NotRestorableError, match=r"^state 'number' of uid 'harness': it is new .* Declare it as 'count'"):
        renamed.open()
    renamed.restore(snapshot, allow_non_restored_state=True)
    with renamed as test:
        test.process_element(("a", 0, 1))
        assert test.get_output() == [("a", 1)]


def test_a_function_that_cannot_be_sent_to_slots_is_refused() -> None:
    """The test finds what the job would refuse."""
    function = Count()
    function.lock = threading.Lock()  # type: ignore[attr-defined]  # the user's own attribute
    with pytest.raises(InvalidInputError, match=r"cannot be sent to the slots of a job"):
        KeyedProcessHarness(function, SCHEMA, OUTPUT, key="k")
