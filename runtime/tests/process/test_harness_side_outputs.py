"""KeyedProcessHarness with side outputs, and schemas as DDL text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from statefulspark import KeyedProcessFunction, OutputTag, RuntimeContext, Types, ValueStateDescriptor
from statefulspark.errors import InvalidInputError
from statefulspark.testing import KeyedProcessHarness
from statefulspark.testing.schemas import arrow_schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
"""Rows have their times in UTC, without a zone, as in PyFlink."""
LATE = OutputTag("late", "user STRING, at TIMESTAMP")
QUIET = OutputTag("quiet", "user STRING NOT NULL, number BIGINT")


class Number(KeyedProcessFunction):
    """Numbers the rows of a user that are not late; a user that has been quiet for a second is told of by a timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        timers = ctx.timer_service()
        if (ctx.timestamp() or 0) <= timers.current_watermark():
            return [(LATE, (value.user, value.at))]
        self.number.update((self.number.value() or 0) + 1)
        timers.register_event_time_timer((ctx.timestamp() or 0) + 1000)
        return [(value.user, self.number.value())]

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield QUIET, (ctx.get_current_key(), self.number.value())


def numbering() -> KeyedProcessHarness:
    return KeyedProcessHarness(
        Number(), "user STRING, at TIMESTAMP", "user STRING, number BIGINT", key="user", event_time="at", side_outputs=[LATE, QUIET]
    )


def test_side_outputs_of_elements_and_timers_are_read_by_their_tag() -> None:
    with numbering() as test:
        test.process_element(("ada",), 5000)
        test.process_watermark(6000)
        test.process_element(("ada",), 5500)
        assert test.get_output() == [("ada", 1)]
        assert test.get_side_output(QUIET) == [("ada", 1)]
        assert test.get_side_output(LATE) == [("ada", EPOCH + timedelta(seconds=5.5))]
        test.clear_output()
        assert test.get_output() == test.get_side_output(LATE) == test.get_side_output(QUIET) == []


def test_a_retry_takes_the_rows_of_every_output_back() -> None:
    with numbering() as test:
        test.process_element(("ada",), 5000)
        test.process_watermark(6000)
        test.retry()
        test.retry()
        assert test.get_side_output(QUIET) == [("ada", 1)]
        test.process_elements([("ada", EPOCH), ("ada", EPOCH + timedelta(seconds=9))])
        test.retry()
        assert (test.get_output(), len(test.get_side_output(LATE))) == ([("ada", 1), ("ada", 2)], 1)


def test_a_tag_that_the_harness_does_not_have_is_refused() -> None:
    with numbering() as test, pytest.raises(InvalidInputError, match="the harness has no side output 'typo'"):
        test.get_side_output(OutputTag("typo", "a INT"))


def test_a_failed_element_leaves_nothing_in_any_output() -> None:
    """A value that does not fit fails the batch, with the rows that did."""
    with KeyedProcessHarness(Misfit(), "user STRING", "user STRING", key="user", side_outputs=[LATE]) as test:
        with pytest.raises(InvalidInputError, match="side output 'late': the step 'harness' produced a str for column 'at'"):
            test.process_element(("ada",))
        assert test.get_output() == test.get_side_output(LATE) == []


class Misfit(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value.user
        yield LATE, (value.user, EPOCH)
        yield LATE, (value.user, "yesterday")


@pytest.mark.parametrize(
    "text",
    ["", "a", "a INTT", "a INT b INT", "a INT,", "a ARRAY<INT", "a INT NOT", "a DECIMAL(x)", "1a INT", "a INT; b INT", "a INT DEFAULT 3"],
)
def test_ddl_text_that_is_no_list_of_columns_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a list of columns"):
        arrow_schema(text)


def test_a_type_of_flinks_is_refused_without_spark() -> None:
    with pytest.raises(InvalidInputError, match=r"schema: Types\.LONG\(\) cannot be read without Spark"):
        arrow_schema(Types.LONG())


def test_ddl_text_is_read_in_sparks_types() -> None:
    """`integration/test_side_outputs.py` compares every type with Spark's own reading."""
    assert arrow_schema("a STRING NOT NULL, `b c` map<string, array<struct<d: decimal(5,2), e: int>>>").equals(
        pa.schema(
            [
                pa.field("a", pa.string(), nullable=False),
                ("b c", pa.map_(pa.string(), pa.list_(pa.struct([("d", pa.decimal128(5, 2)), ("e", pa.int32())])))),
            ]
        )
    )
