"""Loads state backends of one's own by name, and checks what they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from statefulspark.configuration import Configuration
from statefulspark.errors import InvalidInputError, StatefulSparkError, type_name
from statefulspark.state.api.state_backends import SlotResources, StateBackend
from statefulspark.state.store.base import KeyValueStore
from statefulspark.state.user_modules import imported_module

BACKEND_FIELD: Final = "spec.stateBackend.type"
"""Manifest field that names the class."""

_trusted: Final[set[str]] = set()
"""Backends that the caller of a tool has named in this process."""

_METHODS: Final = ("get", "get_many", "scan", "write", "delete_range", "begin_snapshot", "size_bytes", "close")


def is_own_backend(kind: str) -> bool:
    """Tell whether a kind of store is the name of a class, ``module:Class``."""
    return ":" in kind


def trust_backend(name: str) -> None:
    """Lets this process import a state backend to read the checkpoints that name it.

    Args:
        name: ``my_package.backend:MyBackend``.

    Raises:
        InvalidInputError: It is no name of a class.
    """
    if not is_own_backend(name):
        raise InvalidInputError(
            "is not the name of a class", field="backend", remedy="Write module:Class; built-in backends need not be named"
        )
    _trusted.add(name)


def check_trusted(name: str) -> None:
    """Checks that the caller has named the state backend of a checkpoint: importing a module runs it.

    Raises:
        InvalidInputError: The caller has not.
    """
    if name not in _trusted:
        raise InvalidInputError(
            f"the checkpoint names the state backend {name!r}, which is code that would run here",
            field="backend",
            remedy="If you know and trust it, name it: --backend, the option backend of Spark, or state_tables.trust_backend in Python",
        )


def imported_backend(name: str) -> type[StateBackend]:
    """Return the class of that name.

    Args:
        name: ``my_package.backend:MyBackend``.

    Raises:
        InvalidInputError: It cannot be imported, or is no `StateBackend`.
    """
    module_name, _, attribute = name.partition(":")
    module = imported_module(module_name, field=BACKEND_FIELD)
    found = getattr(module, attribute, None)
    if not isinstance(found, type):
        raise InvalidInputError(
            f"{module_name} has no class {attribute!r}", field=BACKEND_FIELD, remedy=f"Define `class {attribute}(StateBackend)`"
        )
    if not issubclass(found, StateBackend):
        raise InvalidInputError(
            f"{attribute} is not a StateBackend", field=BACKEND_FIELD, remedy="Derive it from statefulspark.StateBackend"
        )
    return found


def created_backend(cls: type[StateBackend], configuration: Configuration) -> StateBackend:
    """Return a backend with these settings.

    Raises:
        InvalidInputError: ``create_from_config`` raised, or returned something else.
    """
    try:
        made: object = cls.create_from_config(configuration)
    except InvalidInputError:
        raise  # names a setting
    except Exception as error:
        raise InvalidInputError(
            f"create_from_config of {cls.__qualname__} raised {type(error).__name__}: {error}", field=BACKEND_FIELD, remedy="Correct it"
        ) from error
    if not isinstance(made, StateBackend):
        raise InvalidInputError(
            f"create_from_config of {cls.__qualname__} returned {type_name(type(made))}", field=BACKEND_FIELD, remedy="Return cls(...)"
        )
    return made


def opened_own_store(backend: StateBackend, path: Path, resources: SlotResources) -> KeyValueStore:
    """Open a store of a backend of one's own.

    Raises:
        InvalidInputError: ``open_store`` raised an error that is not one of this package's, or returned what is no store.
        StatefulSparkError: Raised by ``open_store`` itself, for example CorruptDataError.
    """
    name = type(backend).__qualname__
    try:
        store: Any = backend.open_store(path, resources)
    except StatefulSparkError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"open_store of {name} raised {type(error).__name__}: {error}", field=BACKEND_FIELD, remedy="Correct it"
        ) from error
    missing = [each for each in _METHODS if not callable(getattr(store, each, None))]
    if missing:
        raise InvalidInputError(
            f"open_store of {name} returned {type_name(type(store))} without the methods {', '.join(missing)}",
            field=BACKEND_FIELD,
            remedy="Return a KeyValueStore",
        )
    opened: KeyValueStore = store
    return opened


def own_store_opener(cls: type[StateBackend], configuration: Configuration, resources: SlotResources) -> Callable[[Path], KeyValueStore]:
    """Return a function that opens the stores of one process, with one backend for all of them.

    Raises:
        InvalidInputError: As `created_backend` says.
    """
    backend = created_backend(cls, configuration)
    return lambda path: opened_own_store(backend, path, resources)
