"""Names that users give: uids of keyed steps and names of states."""

from __future__ import annotations

from typing import Final

from statefulspark.errors import InvalidInputError

_UID_CHARS_MAX: Final = 200
_STATE_NAME_BYTES_MAX: Final = 255


def check_uid(uid: str) -> None:
    """Raise unless ``uid`` has 1 to 200 characters.

    Raises:
        InvalidInputError: Names the remedy.
    """
    if not 1 <= len(uid) <= _UID_CHARS_MAX:
        raise InvalidInputError(f"must have 1 to {_UID_CHARS_MAX} characters", field="uid", remedy="Give the step a short stable name")


def check_state_name(name: str) -> None:
    """Raise unless ``name`` has 1 to 255 bytes of UTF-8.

    Raises:
        InvalidInputError: It is empty or too long.
    """
    if not 1 <= len(name.encode(errors="replace")) <= _STATE_NAME_BYTES_MAX:
        raise InvalidInputError(f"expected 1 to {_STATE_NAME_BYTES_MAX} bytes of text", field="state name")
