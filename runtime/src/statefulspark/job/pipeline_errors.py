"""The error of a pipeline that could not be built, as one error with a remedy: the user's traceback, or Spark's message in one sentence."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path
from typing import Final

import py4j
import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from statefulspark.connectors.installed import connector_remedy
from statefulspark.errors import InvalidInputError, type_name
from statefulspark.job.spark.query_failures import spark_sentence
from statefulspark.pipeline.script import trace_in_user_code

_NOT_THE_USERS: Final = tuple(f"{Path(file).resolve().parent}{os.sep}" for file in (pyspark.__file__, py4j.__file__, Path(__file__).parent))
"""Folders of the code that users call: pyspark, py4j, statefulspark."""

_NO_UID: Final = "missing 1 required keyword-only argument: 'uid'"
"""How Python's error for a keyed step without a uid ends."""
_NO_CHECKPOINT_LOCATION: Final = "checkpointLocation must be specified"
"""What Spark says to a query that the user starts. Those of a job get their location from statefulspark."""
_NO_SOURCE: Final = re.compile(r"Failed to find (?:the )?data source: ([\w-]+)")
"""How Spark's error for an unknown format begins."""


def pipeline_error(error: Exception) -> InvalidInputError:
    """Translate an exception that the user's pipeline function raised."""
    remedy = "Correct the pipeline; nothing was started"
    if isinstance(error, PySparkException | Py4JError):
        sentence = spark_sentence(error)
        if sentence.startswith(_NO_CHECKPOINT_LOCATION):
            sentence = "a pipeline must not start its query"
            remedy = "Return the DataStreamWriter without calling start() or toTable(), which statefulspark does; nothing was started"
        if (missing := _NO_SOURCE.match(sentence)) is not None:
            sentence = f"there is no data source {missing[1]!r}"
            remedy = f"{connector_remedy(missing[1])}; nothing was started"
        return InvalidInputError(f"Spark refuses the pipeline{_place(error)}: {sentence}", field="spec.job", remedy=remedy)
    if isinstance(error, TypeError) and str(error).endswith(_NO_UID):
        remedy = 'Give the step a name, such as uid="count-clicks", and keep it: its state is found by it; nothing was started'
    return InvalidInputError(f"the pipeline raised {type(error).__name__}\n{trace_in_user_code(error)}\n", field="spec.job", remedy=remedy)


def no_writer(returned: object) -> InvalidInputError:
    """Return the error of a pipeline function that returned something else than a DataStreamWriter."""
    writer = "End the function with `return df.writeStream...`, the DataStreamWriter that"
    if returned is None:
        problem, remedy = "nothing", f"{writer} statefulspark starts"
    elif isinstance(returned, StreamingQuery):
        problem, remedy = "a query that it has started", f"{writer} start() was called on; statefulspark calls it"
    else:
        problem, remedy = type_name(type(returned)), f"{writer} statefulspark starts"
    return InvalidInputError(f"the pipeline function returned {problem}", field="spec.job.entrypoint", remedy=remedy)


def _place(error: Exception) -> str:
    """Return file, line and text of the user's innermost call, in parentheses; empty if there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_NOT_THE_USERS)]
    if not frames:
        return ""
    called = f": {frames[-1].line}" if frames[-1].line else ""
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno}{called})"
