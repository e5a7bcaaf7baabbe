"""Configuration: the settings of a job's own classes (``spec.stateBackend.options``), with PyFlink's getters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from statefulspark.errors import InvalidInputError, type_name

OPTIONS_FIELD: Final = "spec.stateBackend.options"
"""Manifest field that a `Configuration` is made of."""

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,1000}")


class Configuration:
    """Settings by name, as text; read-only. The getters read the text as what they are asked for.

    Args:
        settings: By name; kept as a copy. Empty when None.

    Raises:
        InvalidInputError: A name or a setting is not text.

    Example:
        >>> configuration = Configuration({"my.block-size": "32768", "my.compress": "false"})
        >>> configuration.get_integer("my.block-size", 4096), configuration.get_boolean("my.compress", True)
        (32768, False)
        >>> configuration.get_float("my.share", 0.5)
        0.5
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        given: Mapping[Any, Any] = settings or {}
        for each in (*given, *given.values()):
            if not isinstance(each, str):
                raise InvalidInputError(
                    f"expected text for names and settings, found {type_name(type(each))}", field="Configuration", remedy="Use str()"
                )
        self._settings: dict[str, str] = dict(given)

    def contains_key(self, key: str) -> bool:
        """Tell whether the setting is given."""
        return key in self._settings

    def get_string(self, key: str, default_value: str) -> str:
        """Return the setting as it is written, or ``default_value`` if it is not given."""
        return self._settings.get(key, default_value)

    def get_integer(self, key: str, default_value: int) -> int:
        """Return the setting as a whole number (up to 1000 digits), or ``default_value`` if it is not given.

        Raises:
            InvalidInputError: It is not a whole number.
        """
        text = self._settings.get(key)
        if text is None:
            return default_value
        if _WHOLE_NUMBER.fullmatch(text.strip()) is None:
            raise _wrong(key, "is not a whole number", "Write it without a unit and without a fraction, for example 32768")
        return int(text)

    def get_float(self, key: str, default_value: float) -> float:
        """Return the setting as a finite number, or ``default_value`` if it is not given.

        Raises:
            InvalidInputError: It is not a finite number.
        """
        text = self._settings.get(key)
        if text is None:
            return default_value
        try:
            # Python takes underscores between digits, which no other reader of such settings does.
            number = math.nan if "_" in text else float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise _wrong(key, "is not a number", "Write it without a unit, for example 0.5")
        return number

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Return the setting as true or false in any case of letters, or ``default_value`` if it is not given.

        Raises:
            InvalidInputError: It is neither.
        """
        text = self._settings.get(key)
        if text is None:
            return default_value
        word = text.strip().lower()
        if word not in {"true", "false"}:
            raise _wrong(key, "is neither true nor false", "Write true or false")
        return word == "true"

    def to_dict(self) -> dict[str, str]:
        """Return a copy of all settings."""
        return dict(self._settings)


def _wrong(key: str, message: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(message, field=f"{OPTIONS_FIELD}.{key}", remedy=remedy)
