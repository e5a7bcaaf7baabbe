"""Translates a failed query's errors into our error hierarchy, so that users see their own traceback instead of Spark's."""

from __future__ import annotations

import re

from statefulspark.errors import (
    FencedError,
    InternalError,
    InvalidInputError,
    NotRestorableError,
    StatefulSparkError,
    UnavailableError,
    UserFunctionError,
)
from statefulspark.storage.os_errors import disk_trouble_in

_PLAIN = {cls.__name__: cls for cls in (NotRestorableError, InvalidInputError, UnavailableError, FencedError)}
_FOUND = re.compile(
    r"(?:statefulspark\.errors\.)?(UserFunctionError|NotRestorableError|InvalidInputError|UnavailableError|FencedError): ([^\n]*)"
)
_WHERE = re.compile(r"in uid '([^']*)'(?:, key group (\d+))?")
_SINK = "raised by the Python Proxy"
_OUTPUT = re.compile(r"^\s*The output (.*) of batch \d+ failed\.$", re.MULTILINE)
"""The note of `pipeline.outputs`."""
_RAISED = re.compile(r"(?!Traceback |During |The above )[A-Za-z_][\w.]*(: |$)")
_END = re.compile(r"^(?: SQLSTATE|\tat |\s+at org\.|=== Streaming)", re.MULTILINE)


def query_error(failure: BaseException) -> StatefulSparkError:
    """The cause of a failed query, in our tree."""
    # Spark appends the query's plan, which quotes the texts of our own checks.
    text = str(failure).split("=== Streaming Query ===", 1)[0]
    found = _FOUND.search(text)
    if found is None and (raised := _raised_by_sink(text)) is not None:
        output = _OUTPUT.search(text)
        whose = f"the output {output[1]}" if output is not None else "foreachBatch"
        return UnavailableError(f"the function of {whose} raised {raised}")
    if found is None and (disk := disk_trouble_in(text)) is not None:
        return disk
    if found is None:
        return InternalError(f"the query failed: {_first_lines(text)}")
    kind, first = found.group(1), found.group(2)
    if kind != "UserFunctionError":
        return _PLAIN[kind](re.sub(r" SQLSTATE: \w+$", "", first.strip()))
    rest = text[found.end() :]
    stop = _END.search(rest)
    trace = (rest[: stop.start()] if stop else rest).strip()
    where = _WHERE.search(first)
    message = first.split(" in uid ", 1)[0]
    group = int(where.group(2)) if where and where.group(2) else None
    return UserFunctionError(message, uid=where.group(1) if where else "?", key_group=group, user_traceback=trace)


def _raised_by_sink(text: str) -> str | None:
    """The error that the user's ``foreachBatch`` ended with, as Python names it; None if something else failed.

    A retry may help, since a sink may be temporarily unavailable: the restart strategy decides.
    """
    if _SINK not in text:
        return None
    trace = _END.split(text.partition(_SINK)[2], maxsplit=1)[0]
    named = [line.strip() for line in trace.splitlines() if _RAISED.match(line)]
    return named[-1] if named else "an error"


def spark_sentence(error: BaseException) -> str:
    """The message of a Spark exception in one sentence, without error class, SQL state and Java frames."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"^\[[A-Z_.]+\] | SQLSTATE: \w+$", "", first).rstrip(". ")[:500]


def start_error(error: Exception) -> StatefulSparkError:
    """Translate the error of a query that could not be started."""
    if isinstance(error, StatefulSparkError):
        return error
    return InvalidInputError(f"Spark cannot start the query: {spark_sentence(error)}", field="spec.job", remedy="Correct the pipeline")


def slot_error(slot: int, failure: BaseException) -> StatefulSparkError:
    """The cause of a failed slot, in our tree: an error of the user's ``open`` or of his settings is not one of ours."""
    found = query_error(failure)
    if isinstance(found, InternalError | FencedError):
        # A newer incarnation of the slot fences the slot, not the driver.
        return InternalError(f"slot {slot}: {_last_telling_line(str(failure))}")
    return found


def _last_telling_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if "Error" in line or "Exception" in line]
    return (lines[-1] if lines else text)[:500]


def _first_lines(text: str, lines: int = 12) -> str:
    return "\n".join(text.splitlines()[:lines])[:3000]
