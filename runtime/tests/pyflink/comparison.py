"""Compares the classes that statefulspark exports with a table of PyFlink's."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from textwrap import dedent
from typing import Any

import statefulspark

from .signatures import Classes, is_compared, own_attributes


def exported() -> dict[str, type]:
    """The classes of ``statefulspark.__all__`` by name."""
    return {name: getattr(statefulspark, name) for name in statefulspark.__all__}


def differences(classes: Classes) -> set[str]:
    """Return one line for each class or member that one side lacks, or whose signature or base class differs."""
    here = exported()
    lines = {f"only in PyFlink: {name}" for name in classes if "." not in name and name not in here}
    for name, cls in here.items():
        lines |= set(_compared(name, cls, classes)) if name in classes else {f"only here: {name}"}
    return {line for line in lines if not _is_inherited(line, lines)}


def _is_inherited(line: str, lines: set[str]) -> bool:
    """Tell whether the same difference is listed for an exported base class."""
    where, _, subject = line.partition(": ")
    owner, dot, member = subject.partition(".")
    bases = exported()[owner].__mro__[1:] if dot else ()
    return any(f"{where}: {base.__name__}.{member}" in lines for base in bases)


def _compared(name: str, cls: type, classes: Classes) -> Iterator[str]:
    theirs, ours = _inherited(name, classes), _members(cls)
    for member in sorted(theirs.keys() | ours.keys()):
        full = f"{name}.{member}"
        if member not in ours:
            yield f"only in PyFlink: {full}"
        elif member not in theirs:
            if member[0] != "_":
                yield f"only here: {full}"
        elif theirs[member] != ours[member]:
            yield f"differs: {full} is {theirs[member]} in PyFlink, {ours[member]} here"
        elif full in classes:
            yield from _compared(full, getattr(cls, member), classes)
    for base in classes[name]["bases"]:
        known = getattr(statefulspark, base.rpartition(".")[2], None) if base in statefulspark.__all__ else None
        if known is not None and not issubclass(cls, known):
            yield f"differs: {name} is a {base} in PyFlink"


def _inherited(name: str, classes: Classes) -> dict[str, str]:
    """Members of a class of the table, with those of its bases and its nested classes."""
    members: dict[str, str] = {}
    for base in classes[name]["bases"]:
        # A nested class names its siblings as the class around it does.
        sibling = f"{name.rpartition('.')[0]}.{base}"
        found = sibling if sibling in classes else base
        if found in classes:
            members |= _inherited(found, classes)
    members |= classes[name]["members"]
    prefix = f"{name}."
    return members | {each.removeprefix(prefix): "class" for each in classes if each.startswith(prefix) and "." not in each[len(prefix) :]}


def _members(cls: type) -> dict[str, str]:
    """Members of one of our classes, described as in the table."""
    members: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("statefulspark"):
            continue
        members |= {name: _described(base, name) for name in vars(base) if is_compared(name)}
        members |= dict.fromkeys(_set_attributes(base), "attribute")
    return members


@cache
def _set_attributes(cls: type) -> set[str]:
    return own_attributes(dedent(inspect.getsource(cls)))


def _described(cls: type, name: str) -> str:
    value: Any = inspect.getattr_static(cls, name)
    if isinstance(value, staticmethod | classmethod):
        return f"static {_parameters(getattr(cls, name))}"
    if inspect.isfunction(value):
        return _parameters(value)
    return "class" if inspect.isclass(value) else "attribute"


def _parameters(function: Any) -> str:
    """The parameters as ``ast.unparse`` writes them, without annotations."""
    signature = inspect.signature(function)
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
