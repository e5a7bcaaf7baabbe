"""Names that users give: uids of keyed steps and names of states."""

from __future__ import annotations

from typing import Final

from statefulspark.errors import InvalidInputError, type_name

_UID_CHARS_MAX: Final = 200
_STATE_NAME_BYTES_MAX: Final = 255


def check_uid(uid: str) -> None:
    """Raise unless ``uid`` has 1 to 200 characters.

    Raises:
        InvalidInputError: Names the remedy.
    """
    _check_text(uid, "uid")
    if not 1 <= len(uid) <= _UID_CHARS_MAX:
        raise InvalidInputError(f"must have 1 to {_UID_CHARS_MAX} characters", field="uid", remedy="Give the step a short stable name")


def check_state_name(name: str) -> None:
    """Raise unless ``name`` has 1 to 255 bytes of UTF-8.

    Raises:
        InvalidInputError: It is empty, too long, or no text.
    """
    _check_text(name, "state name")
    if not 1 <= len(name.encode()) <= _STATE_NAME_BYTES_MAX:
        raise InvalidInputError(
            f"expected 1 to {_STATE_NAME_BYTES_MAX} bytes of text", field="state name", remedy="Give the state a short stable name"
        )


def _check_text(name: object, field: str) -> None:
    if not isinstance(name, str):
        raise InvalidInputError(f"expected text, got {type_name(type(name))}", field=field, remedy="Give a short stable name")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInputError("the text contains an unpaired surrogate", field=field, remedy="Give a short stable name") from None
