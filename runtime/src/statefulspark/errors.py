"""The error tree, cut by what the caller does next.

StatefulSparkError
├── InvalidInputError (ValueError)   fix the manifest, the code or the call; nothing was touched
│   └── NotRestorableError           the state and the job do not fit each other
├── UnavailableError                 a dependency did not answer; retry after ``retry_after_s``
│   └── JvmLostError                 Spark's JVM ended; start the job again
├── ConflictError                    another process holds or changed it; reload and decide again
│   └── FencedError                  a newer attempt or incarnation took over; stop
├── CorruptDataError                 stored bytes are damaged; choose an older checkpoint
│   └── IncompatibleFormatError      written by a version this one does not read
├── UserFunctionError                the user's function raised; the job's own code is at fault
├── SlotCrashedError                 a slot's process dies at the same rows each time; its log says of what
├── ClosedError                      used after close
└── InternalError                    our bug; always chained to its cause
"""

from __future__ import annotations


class StatefulSparkError(Exception):
    """Root of all errors raised on purpose by this package."""


class InvalidInputError(StatefulSparkError, ValueError):
    """The input is wrong. ``message`` says how, ``field`` names it as the user wrote it, ``remedy`` says what to change."""

    def __init__(self, message: str, *, field: str | None = None, remedy: str | None = None) -> None:
        self.message = message
        self.field = field
        self.remedy = remedy
        text = f"{field}: {message}" if field else message
        # A text that ends with a traceback ends with its line.
        separator = "" if text.endswith("\n") else ". "
        super().__init__(f"{text}{separator}{remedy}" if remedy else text)

    def named(self, field: str) -> InvalidInputError:
        """Return an error like this one that names a field, unless this one does already."""
        return InvalidInputError(self.message, field=self.field or field, remedy=self.remedy)


class NotRestorableError(InvalidInputError):
    """State exists, but this job may not take it as it is (uid, key groups, types)."""


class UnavailableError(StatefulSparkError):
    """A store, slot or service did not answer. Retry after ``retry_after_s`` seconds."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class JvmLostError(UnavailableError):
    """Spark's JVM ended under the job. Committed batches are in the changelogs: start the job again."""


class ConflictError(StatefulSparkError):
    """A conditional write lost, or the thing changed underneath."""


class FencedError(ConflictError):
    """A newer attempt (driver) or epoch (slot) has taken over; the caller stops."""


class CorruptDataError(StatefulSparkError):
    """Stored bytes are not what was written. ``path`` names the object."""

    def __init__(self, message: str, *, path: str, expected: str = "", found: str = "") -> None:
        self.message = message
        self.path = path
        self.expected = expected
        self.found = found
        detail = f" (expected {expected}, found {found})" if expected or found else ""
        super().__init__(f"{path}: {message}{detail}")


class IncompatibleFormatError(CorruptDataError):
    """The format version is unknown to this release."""


class UserFunctionError(StatefulSparkError):
    """The user's function raised. The text carries uid, key group and the user's own traceback."""

    def __init__(self, message: str, *, uid: str, key_group: int | None, user_traceback: str) -> None:
        self.message = message
        self.uid = uid
        self.key_group = key_group
        self.user_traceback = user_traceback
        where = f"uid {uid!r}" + (f", key group {key_group}" if key_group is not None else "")
        super().__init__(f"{message} in {where}\n{user_traceback}")


class SlotCrashedError(StatefulSparkError):
    """A slot's process died several times at the same rows without raising a Python exception. The executor's log names the cause."""


class ClosedError(StatefulSparkError):
    """Used after it was closed."""


class InternalError(StatefulSparkError):
    """A defect of this package."""


def type_name(kind: type) -> str:
    """Return the name of a Python type with its article, for messages: ``an int``, ``a str``."""
    name = kind.__name__
    return f"{'an' if name[:1] in 'aeioAEIO' else 'a'} {name}"
