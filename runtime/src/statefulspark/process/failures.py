"""Turns an exception of the user's function into a UserFunctionError that reads as if only the user's code existed."""

from __future__ import annotations

from pathlib import Path
from traceback import StackSummary, TracebackException

from statefulspark.errors import UserFunctionError

__all__ = ["user_function_error"]

_PACKAGE = Path(__file__).resolve().parent.parent
_OURS = tuple(f"{_PACKAGE / name}/" for name in ("process", "state", "testing"))


def user_function_error(error: BaseException, *, uid: str, key_group: int | None) -> UserFunctionError:
    """Describe ``error`` by uid, key group and the user's own traceback.

    Rows, keys and state are never part of the text; the exception's own message is, because its author wrote it to be read.
    """
    report = TracebackException.from_exception(error, capture_locals=False)
    _keep_user_frames(report)
    return UserFunctionError(
        f"the function raised {type(error).__name__}", uid=uid, key_group=key_group, user_traceback="".join(report.format()).rstrip()
    )


def _keep_user_frames(report: TracebackException | None) -> None:
    while report is not None:
        frames = [frame for frame in report.stack if not frame.filename.startswith(_OURS)]
        if frames:
            # Without a frame of the user's (say, a wrong signature) ours are all there is to go by.
            report.stack = StackSummary.from_list(frames)
        _keep_user_frames(report.__cause__)
        report = report.__context__
