"""Imports the modules that a manifest names: options factories, state backends."""

from __future__ import annotations

import importlib
from types import ModuleType

from statefulspark.errors import InvalidInputError


def imported_module(name: str, *, field: str) -> ModuleType:
    """Return a user's module.

    Args:
        name: Of the module.
        field: The manifest's field that names it, for the error text.

    Raises:
        InvalidInputError: It cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"cannot import {error.name!r}", field=field, remedy="Put it beside the script, install it, or add it to pyFiles"
        ) from error
    except Exception as error:
        raise InvalidInputError(
            f"importing {name} raised {type(error).__name__}: {error}", field=field, remedy="Correct the module"
        ) from error
