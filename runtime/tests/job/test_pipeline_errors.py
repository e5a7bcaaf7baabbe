"""What the user reads if the pipeline function raises."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql.streaming.query import StreamingQuery

from statefulspark import KeyedStream
from statefulspark.job.start.pipeline_errors import no_writer, pipeline_error
from statefulspark.pipeline.connected_streams import ConnectedStreams


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as found:
        raise error
    return found.value


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            AnalysisException(
                "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703;\n'Project ['x]\n+- Rel"
            ),
            "A column `x` cannot be resolved",
        ),
        (
            Py4JError("An error occurred while calling o45.foo. Trace:\npy4j.Py4JException: Method foo([]) does not exist\n\tat py4j.x"),
            "Method foo([]) does not exist",
        ),
    ],
)
def test_an_error_of_spark_is_one_line_with_the_users_line_and_the_remedy(error: Exception, sentence: str) -> None:
    """Neither plans nor stacks."""
    told = str(pipeline_error(raised(error)))
    assert told.startswith("spec.job: Spark refuses the pipeline (test_pipeline_errors.py, line ")
    assert told.endswith(f": raise error): {sentence}. Correct the pipeline; nothing was started")
    assert "\n" not in told


def test_a_pipeline_that_starts_its_query_is_told_what_to_return() -> None:
    """Spark asks for a checkpoint location, which is not the user's to give."""
    spark = AnalysisException(
        'checkpointLocation must be specified either through option("checkpointLocation", ...) or SparkSession.conf.set("x", ...).'
    )
    told = str(pipeline_error(raised(spark)))
    assert "checkpointLocation" not in told
    assert ": a pipeline must not start its query. Return the DataStreamWriter without calling start()" in told


def test_any_other_error_has_the_users_traceback() -> None:
    """From the user's own code on."""
    told = str(pipeline_error(raised(ValueError("no"))))
    assert told.startswith("spec.job: the pipeline raised ValueError\nTraceback (most recent call last):\n")
    assert told.endswith("\nValueError: no\nCorrect the pipeline; nothing was started")


def test_a_step_without_a_uid_is_told_what_to_add() -> None:
    """Python's own error says only that an argument is missing."""
    step: Any = KeyedStream.process
    with pytest.raises(TypeError) as error:
        step(None, None, "user STRING")
    told = str(pipeline_error(error.value))
    assert told.endswith('\nGive the step a name, such as uid="count-clicks", and keep it: its state is found by it; nothing was started')


@pytest.mark.parametrize(
    ("returned", "problem", "writer"),
    [
        (None, "nothing", "statefulspark starts"),
        ({}, "a dict", "statefulspark starts"),
        (StreamingQuery.__new__(StreamingQuery), "a query that it has started", "start() was called on; statefulspark calls it"),
    ],
)
def test_a_pipeline_that_returns_no_writer_is_told_what_to_return(returned: object, problem: str, writer: str) -> None:
    """A missing `return` in words of Python's user, not of its interpreter."""
    told = f"the pipeline function returned {problem}. End the function with `return df.writeStream...`, the DataStreamWriter that {writer}"
    assert str(no_writer(returned)) == f"spec.job.entrypoint: {told}"


@pytest.mark.parametrize(
    ("owner", "method", "names"),
    [
        (ConnectedStreams, "process", "event_time1, event_time2, watermark1, watermark2"),
        (KeyedStream, "process", "event_time, watermark, watermark_by, idle_after, side_outputs"),
    ],
)
def test_an_unknown_argument_is_answered_with_the_known_ones(owner: Any, method: str, names: str) -> None:
    """A step with two inputs has others than one with one."""
    with pytest.raises(TypeError) as found:
        getattr(owner, method)(None, None, "n bigint", uid="u", watermarks="1 s")
    told = str(pipeline_error(found.value))
    assert told.endswith("; nothing was started")
    assert f"Its arguments are func, output_type, uid, {names}" in told
