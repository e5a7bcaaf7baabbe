"""JSON forms of state values."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from statefulspark.state.row import Row, field_names


def plain(value: Any) -> Any:
    """Return a value for JSON: bytes as base64, numbers that JSON does not have and other objects as their text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part) for part in value]
    if isinstance(value, Row):
        return plain(value.as_dict() if field_names(value) is not None else list(value))
    return str(value)
