"""Errors of our tree as JSON: a stable code for each class, and every field its constructor takes.

Driver, slots and exchange tasks raise each other's errors again with these, so the receiver sees the same class, field and remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statefulspark import errors
from statefulspark.storage.local.os_errors import disk_error

_CODES: dict[str, tuple[type[errors.StatefulSparkError], tuple[str, ...]]] = {
    "invalid-input": (errors.InvalidInputError, ("field", "remedy")),
    "not-restorable": (errors.NotRestorableError, ("field", "remedy")),
    "unavailable": (errors.UnavailableError, ("retry_after_s",)),
    "jvm-lost": (errors.JvmLostError, ("retry_after_s",)),
    "conflict": (errors.ConflictError, ()),
    "fenced": (errors.FencedError, ()),
    "corrupt-data": (errors.CorruptDataError, ("path", "expected", "found")),
    "incompatible-format": (errors.IncompatibleFormatError, ("path", "expected", "found")),
    "user-function": (errors.UserFunctionError, ("uid", "key_group", "user_traceback")),
    "slot-crashed": (errors.SlotCrashedError, ()),
    "closed": (errors.ClosedError, ()),
    "internal": (errors.InternalError, ()),
}
_CODE_OF = {cls: code for code, (cls, _) in _CODES.items()}


def error_body(error: BaseException) -> dict[str, Any]:
    """Returns an error as JSON. A class without a code travels as its nearest base that has one, a foreign error as `InternalError`.

    A full local disk is not our defect, wherever the code that met it left it to the caller.
    """
    error = disk_error(error) or error
    for base in type(error).__mro__:
        code = _CODE_OF.get(base)
        if code is not None:
            _, fields = _CODES[code]
            return {"code": code, "message": getattr(error, "message", str(error)), **{name: getattr(error, name) for name in fields}}
    return {"code": "internal", "message": f"{type(error).__name__}: {error}"}


def error_of(body: Mapping[str, Any]) -> errors.StatefulSparkError | None:
    """Returns the error that `error_body` described, or None if the code is unknown."""
    found = _CODES.get(str(body.get("code")))
    if found is None:
        return None
    cls, fields = found
    return cls(body["message"], **{name: body[name] for name in fields})
