"""Converts an exception of the user's function to a UserFunctionError whose traceback shows only the user's code."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from traceback import StackSummary, TracebackException
from typing import Final

from statefulspark.errors import InvalidInputError, StatefulSparkError, UserFunctionError
from statefulspark.logs.redaction import redact
from statefulspark.process.rows.rows import InputRow

__all__ = ["USER_ERRORS", "error_of_step", "timestamp_hint", "user_function_error"]

USER_ERRORS: Final = (Exception, SystemExit)
"""Errors that a user's function may raise: ``sys.exit()`` fails the batch as any error does, and ends no slot."""

_PACKAGE = Path(__file__).resolve().parents[2]
_COLUMNS_MAX = 20
"""Columns that a hint lists; wide tables have hundreds."""
_LINES_MAX: Final = 60
_LINE_CHARS_MAX: Final = 1_000
"""Bounds of a user's traceback: a message may quote a whole document."""
_OURS = tuple(f"{_PACKAGE / name}/" for name in ("process", "state", "testing", "slot", "rpc"))


def user_function_error(error: BaseException, *, uid: str, key_group: int | None, hint: str = "") -> UserFunctionError:
    """Describe ``error`` by uid, key group and the user's own traceback.

    Rows, keys and state are never part of the text; the exception's own message is, because its author wrote it to be read. Secrets in forms that are known are hidden here
    already: Spark writes the text to its own log.

    Args:
        error: The exception.
        uid: The step.
        key_group: Of the current key, None when no key was current.
        hint: Likely cause, with the remedy.
    """
    error = _raised_by_user(error)
    hint = hint or _column_hint(error)
    report = TracebackException.from_exception(error, capture_locals=False)
    _keep_user_frames(report)
    return UserFunctionError(
        f"the function raised {type(error).__name__}{f' ({hint})' if hint else ''}",
        uid=uid,
        key_group=key_group,
        user_traceback=redact(_bounded("".join(report.format()).rstrip())),
    )


def error_of_step(error: StatefulSparkError, uid: str) -> StatefulSparkError:
    """Return an error of a running step with its uid in the text: a job has many steps, and what a row or a window lacks says of none."""
    if type(error) is not InvalidInputError or repr(uid) in str(error):
        return error
    where = f"uid {uid!r}" if error.field is None else f"uid {uid!r}: {error.field}"
    return InvalidInputError(error.message, field=where, remedy=error.remedy)


def _bounded(text: str) -> str:
    """Cut long lines, and leave out the middle of many."""
    lines = [line if len(line) <= _LINE_CHARS_MAX else f"{line[:_LINE_CHARS_MAX]} ..." for line in text.split("\n")]
    half = _LINES_MAX // 2
    left_out = len(lines) - _LINES_MAX
    return "\n".join(lines if left_out <= 0 else [*lines[:half], f"... {left_out:,} lines are left out ...", *lines[-half:]])


def _raised_by_user(error: BaseException) -> BaseException:
    """Return the StopIteration that Python has replaced by a RuntimeError, because it left a generator of ours; otherwise ``error``."""
    cause = error.__cause__
    if type(error) is not RuntimeError or not isinstance(cause, StopIteration) or cause.__traceback__ is None:
        return error
    # Its traceback begins with the generator that it left. A generator of the user's gets the RuntimeError, as anywhere in Python.
    return cause if cause.__traceback__.tb_frame.f_code.co_filename.startswith(_OURS) else error


def timestamp_hint(error: BaseException, *, event_time: str | None, timestamp_ms: int | None, inputs: int = 1) -> str:
    """Return the hint that belongs to calculating with a timestamp that is None, as in ``ctx.timestamp() + 1000``.

    Args:
        error: The exception.
        event_time: The step's event-time column.
        timestamp_ms: The result of ``ctx.timestamp()``.
        inputs: Number of the step's inputs.
    """
    if timestamp_ms is not None or not isinstance(error, TypeError) or "NoneType" not in str(error):
        return ""
    if inputs > 1:
        return "ctx.timestamp() is None: pass event_time1 and event_time2 to process(), and fill or drop nulls of these columns"
    if event_time is None:
        return "ctx.timestamp() is None in a step without event_time: pass event_time=<column> to process(), or use processing time"
    return f"ctx.timestamp() is None for a row whose event time is null: fill or drop nulls of the column {event_time!r}"


def _column_hint(error: BaseException) -> str:
    """Return the hint that belongs to ``row.usr`` of a row without such a column.

    The row does not raise this itself: a class with ``__getattr__`` looks up all its attributes more slowly.
    """
    if not isinstance(error, AttributeError) or error.name is None or not isinstance(error.obj, InputRow):
        return ""
    columns = error.obj._fields
    near = get_close_matches(error.name, columns, n=1)
    if near:
        return f"{error.name!r} is not a column of the row: did you mean {near[0]}?"
    more = ", ..." if len(columns) > _COLUMNS_MAX else ""
    return f"{error.name!r} is not a column of the row; the columns are {', '.join(columns[:_COLUMNS_MAX])}{more}"


def _keep_user_frames(report: TracebackException | None) -> None:
    while report is not None:
        frames = [frame for frame in report.stack if not frame.filename.startswith(_OURS)]
        if frames:
            # Without a frame of the user's (say, a wrong signature) ours are all there is to go by.
            report.stack = StackSummary.from_list(frames)
        _keep_user_frames(report.__cause__)
        report = report.__context__
