"""Translates a failed query's errors into our error hierarchy, so that users see their own traceback instead of Spark's."""

from __future__ import annotations

import re

from statefulspark.errors import (
    FencedError,
    InternalError,
    InvalidInputError,
    NotRestorableError,
    SlotCrashedError,
    StatefulSparkError,
    UnavailableError,
    UserFunctionError,
)
from statefulspark.storage.local.os_errors import disk_trouble_in

_PLAIN = {cls.__name__: cls for cls in (NotRestorableError, InvalidInputError, UnavailableError, FencedError)}
_FOUND = re.compile(
    r"(?:statefulspark\.errors\.)?(UserFunctionError|NotRestorableError|InvalidInputError|UnavailableError|FencedError): ([^\n]*)"
)
_WHERE = re.compile(r"in uid '([^']*)'(?:, key group (\d+))?")
_SINK = "raised by the Python Proxy"
_OUTPUT = re.compile(r"^[ \t]*The output (.*) of batch \d+ failed\.$", re.MULTILINE)
"""The note of `pipeline.outputs`."""
_RAISED = re.compile(r"(?!Traceback |During |The above )[A-Za-z_][\w.]*(: |$)")
_END = re.compile(r"^(?: SQLSTATE|\tat |[ \t]+at org\.|=== Streaming)", re.MULTILINE)

_CONDITION = re.compile(r"\[([A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ([^\n]*)")
"""Spark's error conditions, and the sentence that follows."""
_WRAPPERS = frozenset(
    {"STREAM_FAILED", "TASK_WRITE_FAILED", "PYTHON_EXCEPTION", "FAILED_EXECUTE_UDF", "WRITING_JOB_ABORTED", "SPARK_JOB_CANCELLED"}
)
"""Conditions that only say that something else failed."""
_UDF = "An exception was thrown from the Python worker: "
_FRAME = re.compile(r'  File "')
_OURS = re.compile(r"/statefulspark/(exchange|job|pipeline|rpc|slot)/")
_FRAMES_MAX = 10
_CALLING = re.compile(r"An error occurred while calling \S+ ?(?:Trace:)?\s*(?:[\w.$]+(?:Exception|Error): )?")
"""What Py4J puts before the message of a Java exception."""
_CRASHED = "Python worker exited unexpectedly (crashed)"
"""Spark's words for a Python process that ended without telling an error."""


def query_error(failure: BaseException) -> StatefulSparkError:
    """The cause of a failed query, in our tree."""
    text = _without_plan(failure)
    return _known(text) or _of_spark(text)


def _without_plan(failure: BaseException) -> str:
    """The text of a failure without the query's plan, which quotes the texts of our own checks."""
    return str(failure).split("=== Streaming Query ===", 1)[0]


def _known(text: str) -> StatefulSparkError | None:
    """The error of ours, of the sink's function or of the disk that a text names; None if there is none."""
    found = _FOUND.search(text)
    if found is None and (raised := _raised_by_sink(text)) is not None:
        output = _OUTPUT.search(text)
        whose = f"the output {output[1]}" if output is not None else "foreachBatch"
        return UnavailableError(f"the function of {whose} raised {raised}")
    if found is None and (disk := disk_trouble_in(text)) is not None:
        return disk
    if found is None:
        return None
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


def _of_spark(text: str) -> StatefulSparkError:
    """The error of a query that Spark or a Python function of the pipeline has failed. A retry may help: the restart strategy decides."""
    if (raised := _raised_by_udf(text)) is not None:
        return UnavailableError(f"a Python function that Spark calls for the query raised {raised}")
    known = [each for each in _CONDITION.finditer(text) if each[1] not in _WRAPPERS]
    if known and not known[-1][1].startswith("INTERNAL_ERROR"):
        condition, sentence = known[-1][1], _without_state(known[-1][2])
        return UnavailableError(f"Spark failed the query: {sentence} [{condition}]. If the pipeline causes this, correct it")
    reason = text.split("terminated with exception: ", 1)[-1]
    return InternalError(f"the query failed: {_without_state(_first_line(reason))[:500]}")


def _raised_by_udf(text: str) -> str | None:
    """The innermost error of a Python function with the user's own frames; None if Spark itself failed."""
    if _UDF not in text:
        return None
    lines = _END.split(text.rpartition(_UDF)[2], maxsplit=1)[0].splitlines()
    named = [line.strip() for line in lines if _RAISED.match(line)]
    if not named:
        return None
    frames = [f"{line}\n{_source(lines, number)}" for number, line in enumerate(lines) if _FRAME.match(line) and "/pyspark/" not in line]
    if any(_OURS.search(frame) for frame in frames):
        return None
    return "\n".join([named[-1], *(frame.rstrip() for frame in frames[-_FRAMES_MAX:])])


def _source(lines: list[str], number: int) -> str:
    following = lines[number + 1] if number + 1 < len(lines) else ""
    return following if following.startswith("    ") else ""


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
    if java is None and (calling := _CALLING.match(text)) is not None:
        text = text[calling.end() :]
    return _without_state(re.sub(r"^\[[A-Z0-9_.]+\] ", "", _first_line(text) or type(error).__name__))[:500]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _without_state(sentence: str) -> str:
    return re.sub(r" SQLSTATE: \w+;?\s*$", "", sentence).rstrip(".; ")


def start_error(error: Exception) -> StatefulSparkError:
    """Translate the error of a query that could not be started."""
    if isinstance(error, StatefulSparkError):
        return error
    return InvalidInputError(f"Spark cannot start the query: {spark_sentence(error)}", field="spec.job", remedy="Correct the pipeline")


def slot_error(slot: int, failure: BaseException) -> StatefulSparkError:
    """The cause of a failed slot, in our tree: an error of the user's ``open`` or of his settings is not one of ours."""
    text = _without_plan(failure)
    found = _known(text)
    if found is None and _CRASHED in text:
        return SlotCrashedError(
            f"the process of slot {slot} died, and no Python exception was raised. Check the executor's log for a crash in native code"
            " (Segmentation fault) or a kernel OOM kill (OOMKilled: increase spec.executor.memory). If it dies each time while it restores, a"
            " file of the checkpoint may be the cause: start from an earlier one with --from (on Kubernetes: spec.initialSnapshot)"
        )
    if found is None or isinstance(found, FencedError):
        # A newer incarnation of the slot fences the slot, not the driver.
        return InternalError(f"slot {slot}: {_last_telling_line(str(failure))}")
    return found


def _last_telling_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if "Error" in line or "Exception" in line]
    return (lines[-1] if lines else text)[:500]
