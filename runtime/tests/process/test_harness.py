"""KeyedProcessHarness: users' tests see what a slot would do, and go on after an error."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from statefulspark import KeyedProcessFunction, Row, RuntimeContext, Types, ValueStateDescriptor
from statefulspark.errors import ClosedError, InvalidInputError, UserFunctionError
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
        test.process_element(Row(k="a", n=1), 1000)
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
        with pytest.raises(InvalidInputError, match="the test gave a str for column 'n'"):
            test.process_element(("a", "x"), 0)
    with pytest.raises(ClosedError):
        test.snapshot()
    with KeyedProcessHarness(Count(), SCHEMA, OUTPUT, key="k") as test, pytest.raises(InvalidInputError, match="event_time=<column>"):
        test.process_element(("a", 0, 1), 0)
