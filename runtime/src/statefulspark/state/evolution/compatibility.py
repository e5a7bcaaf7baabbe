"""Compares a stored type with a declared one. Pure.

`compare` walks both types at once. Each pair of parts becomes a line, with a problem if the stored part cannot become the declared one, so a
refusal shows the types side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

Type = Mapping[str, Any]
"""A type in JSON."""

WIDER: Final[Mapping[str, frozenset[str]]] = {
    "BYTE": frozenset({"SHORT", "INT", "LONG", "BIG_INT", "FLOAT", "DOUBLE"}),
    "SHORT": frozenset({"INT", "LONG", "BIG_INT", "FLOAT", "DOUBLE"}),
    "INT": frozenset({"LONG", "BIG_INT", "DOUBLE"}),
    "LONG": frozenset({"BIG_INT"}),
    "FLOAT": frozenset({"DOUBLE"}),
    "CHAR": frozenset({"STRING"}),
}
"""Types that hold every value of a type, exactly."""

LISTS: Final = frozenset({"LIST", "BASIC_ARRAY", "OBJECT_ARRAY"})
_PRIMITIVES: Final = "PRIMITIVE_ARRAY"
_BY_POSITION: Final = frozenset({"ROW", "TUPLE"})
_RENAMED: Final = "renamed?"


@dataclass(frozen=True, slots=True)
class Line:
    """One part of both types.

    Attributes:
        path: Names from the whole type to the part.
        stored: Name of the part's type in state; empty if there is no such part.
        declared: The same in the declaration.
        problem: Why the stored part cannot become the declared one; empty if it can.
    """

    path: tuple[str, ...]
    stored: str
    declared: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found.

    Attributes:
        same: True if the types are equal apart from defaults: nothing is migrated.
        lines: All parts, in the order of the declaration.
    """

    same: bool
    lines: tuple[Line, ...]

    @property
    def problem(self) -> Line | None:
        """The first part that cannot be migrated; None if the types are compatible."""
        return next((line for line in self.lines if line.problem), None)

    @property
    def removed(self) -> list[str]:
        """Paths of the fields that the declaration no longer has."""
        return [".".join(line.path) for line in self.lines if not line.declared]

    def table(self) -> list[str]:
        """Return both types side by side, as lines of text."""
        width = max(len(line.path[-1]) + 2 * len(line.path) for line in self.lines if line.path) if len(self.lines) > 1 else 0
        cells = [(_cell(line.path, line.stored, width), _cell(line.path, line.declared, width), line.problem) for line in self.lines]
        rows = [("stored", "declared", ""), *cells]
        widths = [max(len(row[column]) for row in rows) + 2 for column in range(2)]
        return [f"  {row[0]:<{widths[0]}}{row[1]:<{widths[1]}}{row[2]}".rstrip() for row in rows]

    def remedy(self) -> str:
        """Return what to do about the first problem."""
        problem = self.problem
        if problem is None:
            return ""
        if problem.problem == _RENAMED:
            return (
                "Keep the old names. If the fields are others, remove and add them in two upgrades, or set spec.allowNonRestoredState: true "
                "to discard what is removed"
            )
        if not problem.stored or not problem.declared:
            return "Declare as many fields as before, or use a new state name"
        return f"Declare {'.'.join(problem.path) or 'it'} as {problem.stored}, or use a new state name"


def compare(
    stored: Type, declared: Type, history: Iterable[Type] = (), *, may_rename: bool = False, keeps_keys: bool = False
) -> Comparison:
    """Compare a stored type with a declared one.

    Args:
        stored: The current type of the state.
        declared: What the job declares.
        history: Types that the state has had. A return to one of them may narrow numbers again, and remove and add fields at once.
        may_rename: True to remove and add fields of one row at once.
        keeps_keys: True for map and broadcast state, whose entries are stored by the bytes of their keys: they may not change.
    """
    stored, declared = without_defaults(stored), without_defaults(declared)
    back = any(without_defaults(each) == declared for each in history)
    walk = _Walk(narrows=back, renames=back or may_rename)
    lines = list(walk.lines(stored, declared, ()))
    if keeps_keys and stored.get("key") != declared.get("key"):
        lines = [Line(line.path, line.stored, line.declared, "keys cannot change") if line.path == ("key",) else line for line in lines]
    return Comparison(stored == declared, tuple(lines))


def without_defaults(type_: Type) -> dict[str, Any]:
    """Return a type without the defaults of its fields."""
    return {name: _bare(part) for name, part in type_.items() if name != "defaults"}


def type_name(type_: Type) -> str:
    """Return the name with which ``Types`` makes a type."""
    if type_.get("type") == "ROW" and "names" in type_:
        return "ROW_NAMED"
    if type_.get("type") == _PRIMITIVES:
        return f"{_PRIMITIVES}({type_['element'].get('type')})"
    return str(type_.get("type", "nothing"))


def _bare(part: Any) -> Any:
    if isinstance(part, Mapping):
        return without_defaults(part)
    return [_bare(each) for each in part] if isinstance(part, list | tuple) else part


def _cell(path: Sequence[str], name: str, width: int) -> str:
    if not name or not path:
        return name
    return f"{'  ' * len(path) + path[-1]:<{width}}  {name}"


@dataclass(frozen=True, slots=True)
class _Walk:
    """The rules.

    Attributes:
        narrows: True to allow the reverse of a widening.
        renames: True to remove and add fields of one row at once.
    """

    narrows: bool
    renames: bool

    def lines(self, stored: Type, declared: Type, path: tuple[str, ...]) -> Iterable[Line]:
        """Yield the line of this part and those of its parts."""
        before, after = stored.get("type"), declared.get("type")
        names = type_name(stored), type_name(declared)
        if before in _BY_POSITION and after in _BY_POSITION:
            yield Line(path, *names)
            yield from self._fields(stored, declared, path)
        elif before == after == "MAP":
            yield Line(path, *names)
            for part in ("key", "value"):
                yield from self.lines(stored[part], declared[part], (*path, part))
        elif _is_list(before) and _is_list(after):
            yield Line(path, *names, "elements may be None" if before in LISTS and after == _PRIMITIVES else "")
            yield from self.lines(stored["element"], declared["element"], (*path, "element"))
        else:
            yield Line(path, *names, self._scalar_problem(stored, declared))

    def _fields(self, stored: Type, declared: Type, path: tuple[str, ...]) -> Iterable[Line]:
        old, new = stored["fields"], declared["fields"]
        if "names" not in stored or "names" not in declared:
            names = dict(enumerate(declared.get("names") or stored.get("names") or ()))
            for index, (was, becomes) in enumerate(zip_longest(old, new)):
                place = (*path, names.get(index, str(index)))
                if was is None or becomes is None:
                    yield Line(place, _name(was), _name(becomes), "not as many fields")
                else:
                    yield from self.lines(was, becomes, place)
            return
        was_by_name = dict(zip(stored["names"], old, strict=True))
        new_by_name = dict(zip(declared["names"], new, strict=True))
        added, removed = new_by_name.keys() - was_by_name.keys(), was_by_name.keys() - new_by_name.keys()
        problem = _RENAMED if added and removed and not self.renames else ""
        for name, becomes in new_by_name.items():
            if name in was_by_name:
                yield from self.lines(was_by_name[name], becomes, (*path, name))
            else:
                yield Line((*path, name), "", type_name(becomes), problem)
        yield from _removed_lines(was_by_name, removed, path, problem)

    def _scalar_problem(self, stored: Type, declared: Type) -> str:
        before, after = str(stored.get("type")), str(declared.get("type"))
        if stored == declared or after in WIDER.get(before, ()):
            return ""
        if before in WIDER.get(after, ()):
            return "" if self.narrows else "narrower"
        return "of another kind"


def _removed_lines(fields: Mapping[str, Type], removed: Collection[str], path: tuple[str, ...], problem: str) -> Iterable[Line]:
    for name, was in fields.items():
        if name in removed:
            yield Line((*path, name), type_name(was), "", problem)


def _name(type_: Type | None) -> str:
    return "" if type_ is None else type_name(type_)


def _is_list(name: object) -> bool:
    return name in LISTS or name == _PRIMITIVES
