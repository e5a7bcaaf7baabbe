"""Side outputs of one slot: rows go where their tag says, and everything that cannot be right is refused by step, tag and field."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from statefulspark import OutputTag
from statefulspark.errors import InvalidInputError
from statefulspark.process.output.buffer import OutputBuffer
from statefulspark.process.output.side_outputs import SideOutput, TaggedOutputBuffer, tagged_schema, untagged
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.testing.schemas import arrow_schema

from .test_step_spec import GOOD

MAIN = pa.schema([("user", pa.string()), ("amount", pa.int64())])
LATE = OutputTag("late", {"user": pa.string()})
BIG = OutputTag("big", {"amount": pa.int64(), "user": pa.string()})
SIDES = tuple(SideOutput(tag, arrow_schema(tag.schema)) for tag in (LATE, BIG))


def buffer(*, rows_max: int = 1000, bytes_max: int = 1 << 20) -> TaggedOutputBuffer:
    return TaggedOutputBuffer("orders", MAIN, SIDES, rows_max=rows_max, bytes_max=bytes_max)


def taken(given: TaggedOutputBuffer, rows: Iterable[Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Everything that the buffer makes of the rows, as the runner asks for it."""
    batches = [given.take() for row in rows if given.add(row)]
    while given:
        batches.append(given.take())
    assert {batch.schema for batch in batches} <= {tagged_schema(MAIN, SIDES)}
    return [(name, part.to_pylist()) for name, part in map(untagged, batches)]


def test_rows_go_where_their_tag_says_in_the_order_in_which_they_came() -> None:
    rows = [("ada", 1), (LATE, "ben"), (BIG, {"user": "eve", "amount": 9}), ("ada", 2), (LATE, ("cleo",))]
    assert taken(buffer(), rows) == [
        ("main", [{"user": "ada", "amount": 1}, {"user": "ada", "amount": 2}]),
        ("late", [{"user": "ben"}, {"user": "cleo"}]),
        ("big", [{"amount": 9, "user": "eve"}]),
    ]


def test_a_row_of_nulls_is_a_row() -> None:
    """What tells outputs apart is the struct around the columns."""
    assert taken(buffer(), [(None, None), (BIG, (None, None))]) == [
        ("main", [{"user": None, "amount": None}]),
        ("big", [{"amount": None, "user": None}]),
    ]


def test_an_output_that_is_full_is_sent_and_the_others_wait() -> None:
    found = taken(buffer(rows_max=2), [("a", 1), (LATE, "x"), (LATE, "y"), ("b", 2), (LATE, "z")])
    assert [(name, len(rows)) for name, rows in found] == [("late", 2), ("main", 2), ("late", 1)]


def test_all_outputs_together_stay_within_the_bytes_of_one() -> None:
    """Each of the three gets a third, so that a step with many outputs holds no more than one without."""
    given = buffer(bytes_max=3000)
    assert not given.add(("a" * 900, 1))
    assert given.add((LATE, "b" * 1100))
    assert untagged(given.take())[0] == "late"


def test_a_tag_that_is_pickled_apart_from_its_declaration_is_the_same_tag() -> None:
    """A module that is pickled by value, and one that is imported, have tag objects of their own in a slot."""
    for copy in (pickle.loads(pickle.dumps(LATE)), cloudpickle.loads(cloudpickle.dumps(LATE))):
        assert copy == LATE
        assert copy is not LATE
        assert hash(copy) == hash(LATE)
        assert taken(buffer(), [(copy, "x")]) == [("late", [{"user": "x"}])]


def test_clear_forgets_the_rows_of_every_output() -> None:
    given = buffer(rows_max=1)
    given.add((LATE, "x"))
    given.add(("a", 1))
    given.clear()
    assert not given
    assert taken(given, [(BIG, (1, "b"))]) == [("big", [{"amount": 1, "user": "b"}])]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            (OutputTag("typo", "user STRING"), "SECRET"),
            "side_outputs: the step 'orders' emitted to the side output 'typo', which it does not declare.",
        ),
        (
            (OutputTag("late", {"user": pa.int64()}), "SECRET"),
            "side output 'late': the step 'orders' emitted to a tag whose schema differs",
        ),
        (
            (LATE, "SECRET", 1),
            "side output 'late': the step 'orders' emitted a tag with 2 values. Yield the tag and one row: yield tag, (a, b)",
        ),
        ((LATE,), "side output 'late': the step 'orders' emitted a tag with 0 values."),
        ((BIG, ("SECRET", "b")), "side output 'big': the step 'orders' produced a str for column 'amount' of type int64."),
        ((BIG, "SECRET"), "side output 'big': the step 'orders' produced a str as a row of 2 columns."),
        ((BIG, ("SECRET",)), "side output 'big': the step 'orders' produced a row of 1 values for 2 columns (amount, user)."),
        ((BIG, {"amount": 1}), "side output 'big': the step 'orders' produced a row without the column 'user'."),
        (("SECRET", "x"), "output_type: the step 'orders' produced a str for column 'amount' of type int64."),
    ],
)
def test_what_does_not_fit_is_refused_by_step_tag_and_field_and_never_by_value(row: Any, says: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        taken(buffer(), [row])
    assert str(refused.value).startswith(says)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("schema", [MAIN, pa.schema([("user", pa.string())]), pa.schema([("s", pa.struct(list(MAIN)))])])
def test_a_step_without_side_outputs_names_the_tag_that_it_gets(schema: pa.Schema) -> None:
    given = OutputBuffer(schema, "the step 'orders'", rows_max=10, bytes_max=1000)
    given.add((LATE, ("ada", 1)))
    with pytest.raises(
        InvalidInputError, match="side_outputs: the step 'orders' emitted to the side output 'late', which it does not declare"
    ):
        given.take()


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ((LATE, LATE), "the step 'turnaround' has two tags named 'late'."),
        ((LATE, OutputTag("late", {"at": pa.int64()})), "the step 'turnaround' has two tags with different schemas named 'late'."),
        ((LATE, OutputTag("Late", {"user": pa.string()})), "named 'late' and 'Late', which Spark cannot tell apart."),
        ((OutputTag("none", {}),), "the side output 'none' of the step 'turnaround' has no columns."),
        ((OutputTag("two", pa.schema([("a", pa.int64()), ("a", pa.int64())])),), "has two columns of one name."),
    ],
)
def test_a_step_whose_outputs_cannot_be_told_apart_is_refused(tags: tuple[OutputTag, ...], says: str) -> None:
    outputs = tuple(SideOutput(tag, arrow_schema(tag.schema)) for tag in tags)
    with pytest.raises(InvalidInputError) as refused:
        StepSpec(**{**GOOD, "side_outputs": outputs})
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("", "a INT"), "OutputTag: must have 1 to 200 characters."),
        (("x" * 201, "a INT"), "OutputTag: must have 1 to 200 characters."),
        ((7, "a INT"), "OutputTag: expected a str, got int."),
        (("Main", "a INT"), "OutputTag: 'Main' is the name of the output without a tag."),
        (("late", None), "OutputTag: the side output 'late' has no schema."),
        (("late", " "), "OutputTag: the side output 'late' has no schema."),
    ],
)
def test_a_tag_without_a_name_or_a_schema_is_refused(arguments: tuple[Any, Any], says: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        OutputTag(*arguments)
    assert str(refused.value).startswith(says)


def test_a_step_without_side_outputs_sends_what_it_always_sent() -> None:
    """Its results have the output schema and nothing around it, and no row is searched for a tag."""
    step = StepSpec(**GOOD)
    assert step.side_outputs == ()
    assert step.result_schema is step.output_schema
