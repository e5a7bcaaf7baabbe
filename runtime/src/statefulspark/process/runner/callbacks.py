"""Callbacks: the methods of a user's function that are called for rows and timers."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from inspect import iscoroutine, isgeneratorfunction
from typing import Any

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.process.rows.step_spec import StepSpec

Callback = Callable[[Any, Any], Iterable[Any] | None]
"""Called with a row or a timestamp, and a context; returns output rows."""


def callback(step: StepSpec, name: str) -> Callback:
    """Return the method of the step's function; wraps a method that is not a generator, to check what it returns.

    Raises:
        InvalidInputError: From the method, if it returned a single row of text, bytes or a mapping, whose parts would count as rows, or nothing
            that has rows, such as a number or a coroutine.
    """
    method: Callback = getattr(step.function, name)
    if isgeneratorfunction(method):
        return method

    def checked(first: Any, context: Any) -> Iterable[Any] | None:
        produced = method(first, context)
        # Asked only of what is neither: asking whether something is a Mapping takes longer than the rest of this call.
        if produced is not None and produced.__class__ is not list:
            check_rows(produced, name, step.uid)
        return produced

    return checked


def check_rows(produced: object, name: str, uid: str) -> None:
    """Raise unless ``produced`` can be taken for output rows.

    Args:
        produced: What a method has returned, not None.
        name: The method.
        uid: The step.

    Raises:
        InvalidInputError: It is a single row of text, bytes or a mapping, or nothing that has rows.
    """
    if hasattr(type(produced), "__iter__") and not isinstance(produced, str | bytes | Mapping):
        return
    remedy = "Yield output rows, or return a list of them"
    if iscoroutine(produced) or isinstance(produced, AsyncIterable):
        remedy = "Define it with def, not with async def"
    if iscoroutine(produced):
        produced.close()  # else Python warns that nobody awaits it
    raise InvalidInputError(f"{name} of the step {uid!r} returned {type_name(type(produced))}", field=name, remedy=remedy)


def is_own(method: Callable[..., Any], inherited: Callable[..., Any]) -> bool:
    """Return False if a method of a user's object, or an attribute instead of it, is the one that all such objects inherit."""
    return getattr(method, "__func__", None) is not inherited
