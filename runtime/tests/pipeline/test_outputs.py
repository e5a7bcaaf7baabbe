"""`Job.outputs`: what it refuses, and the order of a batch's steps. `integration/test_side_outputs.py` runs it on Spark."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from statefulspark import OutputTag, Types
from statefulspark.errors import InvalidInputError
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.pipeline.job import Job
from statefulspark.pipeline.outputs import outputs_writer
from statefulspark.pipeline.tagged_streams import TaggedStream, side_outputs_of, spark_schema

NAMES = ("main", "refused", "late-data")


class Batch:
    """A batch DataFrame that notes what is asked of it."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def persist(self) -> None:
        self.log.append("persist")

    def unpersist(self) -> None:
        self.log.append("unpersist")

    def count(self) -> int:
        self.log.append("count")
        return 0

    def where(self, condition: str) -> Any:
        return SimpleNamespace(select=lambda columns: (condition, columns))


class Writer:
    """A DataStreamWriter that keeps the function of foreachBatch."""

    write: Callable[[Any, int], None]

    def foreachBatch(self, write: Callable[[Any, int], None]) -> Writer:  # noqa: N802  Spark's name
        self.write = write
        return self


def stream() -> TaggedStream:
    return TaggedStream("book", cast("Any", SimpleNamespace(columns=list(NAMES), writeStream=Writer())))


def job(*streams: TaggedStream) -> Job:
    made = Job(
        spark=cast("Any", None),
        name="j",
        args=[],
        parallelism=1,
        max_parallelism=1,
        endpoint=Endpoint(location="x", secret=""),
        hashings={},
    )
    for each in streams:
        made.add_tagged_stream(each)
    return made


def test_a_batch_is_computed_before_any_output_has_it_and_outputs_come_in_their_order() -> None:
    """Also when the arguments come in another one; a discarded output gets nothing."""
    batch = Batch()

    def into(name: str) -> Any:
        return lambda rows, batch_id: batch.log.append((name, rows, batch_id))

    writer = cast("Any", job(given := stream()).outputs(given, **{"late-data": into("late"), "refused": None, "main": into("main")}))
    writer.write(batch, 7)
    assert batch.log == [
        "persist",
        "count",
        ("main", ("`main` IS NOT NULL", "`main`.*"), 7),
        ("late", ("`late-data` IS NOT NULL", "`late-data`.*"), 7),
        "unpersist",
    ]


def test_an_output_that_fails_ends_the_batch_with_its_name_and_frees_it() -> None:
    batch = Batch()

    def fails(_rows: Any, _batch_id: int) -> None:
        raise RuntimeError("full")

    writer = cast("Any", outputs_writer(stream(), {"main": None, "refused": fails, "late-data": lambda *_: batch.log.append("late")}))
    with pytest.raises(RuntimeError, match="full") as failed:
        writer.write(batch, 7)
    assert failed.value.__notes__ == ["The output 'refused' of batch 7 failed."]
    assert batch.log == ["persist", "count", "unpersist"]


def nothing(_rows: Any, _batch_id: int) -> None: ...


@pytest.mark.parametrize(
    ("writers", "says"),
    [
        (
            {"main": nothing, "refused": nothing},
            "outputs: nothing consumes the output 'late-data' of the step 'book'. Pass a function for it",
        ),
        (
            dict.fromkeys((*NAMES, "refusd"), nothing),
            "outputs: the step 'book' has no output 'refusd'. Its outputs are main, refused, late-data",
        ),
        (dict.fromkeys(NAMES), "outputs: all outputs of the step 'book' are discarded. Pass a function for at least one output"),
        (
            dict.fromkeys(NAMES, "out/path"),
            "outputs: expected a function for 'main', got str. Pass a function write(df, batch_id), or None",
        ),
    ],
)
def test_functions_that_do_not_fit_the_outputs_are_refused(writers: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        job(given := stream()).outputs(given, **writers)
    assert str(refused.value).startswith(says)


def test_the_outputs_of_a_step_are_written_once() -> None:
    made = job(given := stream())
    made.outputs(given, **dict.fromkeys(NAMES, nothing))
    made.check_outputs()
    with pytest.raises(InvalidInputError, match=r"outputs: the outputs of the step 'book' have already been written. Call outputs"):
        made.outputs(given, **dict.fromkeys(NAMES, nothing))


def test_a_step_whose_outputs_go_nowhere_is_refused_by_name() -> None:
    with pytest.raises(
        InvalidInputError, match=r"nothing consumes the outputs 'main', 'refused', 'late-data' of the step 'book'. Return job.outputs"
    ):
        job(stream()).check_outputs()


def test_a_dataframe_has_one_output() -> None:
    with pytest.raises(
        InvalidInputError, match=r"outputs: expected a stream with side outputs, got SimpleNamespace. Write it with writeStream"
    ):
        job().outputs(cast("Any", SimpleNamespace()), main=nothing)


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ([], "side_outputs: expected a non-empty list of OutputTags, got list."),
        (
            OutputTag("late", "a INT"),
            "side_outputs: expected a non-empty list of OutputTags, got OutputTag. Pass side_outputs=[tag], or leave it out",
        ),
        (["late"], "side_outputs: expected OutputTags, got str. Pass side_outputs="),
        (
            [OutputTag("late", cast("Any", 7))],
            "side output 'late': expected DDL text or a type, got int. Write 'name type, name type', or give a StructType",
        ),
    ],
)
def test_what_is_no_list_of_tags_is_refused(tags: Any, says: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        side_outputs_of(tags, "UTC")
    assert str(refused.value).startswith(says)


def test_a_schema_in_any_form_has_the_same_columns() -> None:
    """DDL text needs Java; the integration test reads it."""
    expected = T.StructType([T.StructField("a", T.LongType()), T.StructField("b", T.StringType())])
    fields = {"a": pa.int64(), "b": pa.string()}
    row = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
    assert [spark_schema(OutputTag("x", each)) for each in (expected, fields, pa.schema(list(fields.items())), row)] == [expected] * 4
