"""The error of a pipeline that could not be built, as one error with a remedy: the user's traceback, or Spark's message in one sentence."""

from __future__ import annotations

import inspect
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
from statefulspark.pipeline.broadcast_streams import BroadcastConnectedStream
from statefulspark.pipeline.connected_streams import ConnectedStreams
from statefulspark.pipeline.job import Job
from statefulspark.pipeline.keyed_streams import KeyedStream
from statefulspark.pipeline.keyed_transformations import KeyedTransformations
from statefulspark.pipeline.script import trace_in_user_code
from statefulspark.pipeline.windowed_streams import WindowedStream

_NOT_THE_USERS: Final = tuple(
    f"{Path(file).resolve().parent}{os.sep}" for file in (pyspark.__file__, py4j.__file__, Path(__file__).parents[1])
)
"""Folders of the code that users call: pyspark, py4j, statefulspark."""

_NO_UID: Final = "missing 1 required keyword-only argument: 'uid'"
"""How Python's error for a keyed step without a uid ends."""
_UNKNOWN_ARGUMENT: Final = re.compile(r"\b(\w+)\.(\w+)\(\) got an unexpected keyword argument")
_STREAMS: Final = (Job, KeyedStream, KeyedTransformations, ConnectedStreams, BroadcastConnectedStream, WindowedStream)
"""Classes whose methods pipelines call."""
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
    if isinstance(error, TypeError) and (known := _known_arguments(str(error))):
        remedy = f"Its arguments are {', '.join(known)}; nothing was started"
    return InvalidInputError(f"the pipeline raised {type(error).__name__}\n{trace_in_user_code(error)}\n", field="spec.job", remedy=remedy)


def _known_arguments(message: str) -> list[str]:
    """Return the arguments of the method of ours that was called with an unknown one; empty if the message says nothing of that."""
    found = _UNKNOWN_ARGUMENT.search(message)
    owner = next((each for each in _STREAMS if found is not None and each.__name__ == found[1]), None)
    if found is None or owner is None:
        return []
    return [name for name in inspect.signature(getattr(owner, found[2])).parameters if name != "self"]


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
