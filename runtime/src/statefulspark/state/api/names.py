"""Names that users give, uids of keyed steps and names of states, and those of states that the runtime makes."""

from __future__ import annotations

import re
from typing import Final, Self

from statefulspark.errors import InternalError, InvalidInputError, type_name

_UID_CHARS_MAX: Final = 200
_STATE_NAME_BYTES_MAX: Final = 255
_RESERVED: Final = frozenset({"event-timers", "processing-timers", "_raw_keyed", "_raw_operator", "_reduce", "_default_"})
_RESERVED_SHAPE: Final = re.compile(r"_[a-z]+(?:_[a-z]+)*[.(]")
"""How the other names begin, such as ``_window(…)``, ``_window.trigger(…)`` and ``_sum(column)``. A release may add more of this shape."""


class RuntimeName(str):
    """Name of a state that the runtime makes; descriptors refuse it as a plain text.

    Raises:
        InternalError: Users could give the name as well.

    Example:
        >>> RuntimeName("_window(TimeWindow, reduced)")
        '_window(TimeWindow, reduced)'
    """

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        if not is_reserved(name):
            raise InternalError(f"the state name {name!r} is not reserved for the runtime")
        return super().__new__(cls, name)


def check_uid(uid: str) -> None:
    """Raise unless ``uid`` has 1 to 200 characters.

    Raises:
        InvalidInputError: Names the remedy.
    """
    _check_text(uid, "uid")
    if not 1 <= len(uid) <= _UID_CHARS_MAX:
        raise InvalidInputError(f"must have 1 to {_UID_CHARS_MAX} characters", field="uid", remedy="Give the step a short stable name")


def check_state_name(name: str) -> None:
    """Raise unless ``name`` has 1 to 255 bytes of UTF-8, and is not one of the runtime's or comes from the runtime.

    Raises:
        InvalidInputError: It is empty, too long, reserved, or no text.
    """
    _check_text(name, "state name")
    if not 1 <= len(name.encode()) <= _STATE_NAME_BYTES_MAX:
        raise InvalidInputError(
            f"expected 1 to {_STATE_NAME_BYTES_MAX} bytes of text", field="state name", remedy="Give the state a short stable name"
        )
    if is_reserved(name) and not isinstance(name, RuntimeName):
        raise InvalidInputError(
            "the name is reserved for the runtime",
            field=f"state {name!r}",
            remedy="Choose another name. If a checkpoint or savepoint has your state under this name, rename it there: "
            "statefulspark rewrite PATH DIRECTORY --rename-state UID:OLD=NEW",
        )


def is_reserved(name: str) -> bool:
    """Return True if only the runtime may name a state so.

    Example:
        >>> is_reserved("_window.trigger(TimeWindow, list, seen)"), is_reserved("_window"), is_reserved("_count")
        (True, False, False)
    """
    return name in _RESERVED or _RESERVED_SHAPE.match(name) is not None


def _check_text(name: object, field: str) -> None:
    if not isinstance(name, str):
        raise InvalidInputError(f"expected text, got {type_name(type(name))}", field=field, remedy="Give a short stable name")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInputError("the text contains an unpaired surrogate", field=field, remedy="Give a short stable name") from None
