"""The few statements of Lua that Argo CD's health checks use, run as Python: one statement in a line, tables that are only read or given fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


class Table(dict[str, Any]):
    """A table of Lua with names as keys; a field that is not there is nil."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


_EXPRESSIONS = ((r"~=", "!="), (r"\bnil\b", "None"), (r"\btrue\b", "True"), (r"\bfalse\b", "False"), (r"\{ (.*) \}", r"Table(\1)"))
_STATEMENTS = (
    (r"--(.*)", r"#\1"),
    (r"local (.*)", r"\1"),
    (r"for _, (\w+) in ipairs\((.*)\) do", r"for \1 in \2:"),
    (r"(?:else)?if (.*) then", r"if \1:"),
    (r"else", "else:"),
)


def python_of(lua: str) -> str:
    """The same statements in Python, as the body of ``check(obj)``."""
    lines, depth = ["def check(obj):"], 1
    for line in filter(None, map(str.strip, lua.splitlines())):
        if line == "end" or line.startswith("else"):
            depth -= 1
        if line == "end":
            continue
        text = next((re.sub(old, new, line) for old, new in _STATEMENTS if re.fullmatch(old, line)), line)
        if not text.startswith("#"):
            for old, new in _EXPRESSIONS:
                text = re.sub(old, new, text)
        lines.append("    " * depth + ("el" if line.startswith("elseif") else "") + text)
        depth += text.endswith(":")
    return "\n".join(lines)


def health(script: Path, document: dict[str, Any]) -> dict[str, Any]:
    """What a health check says of an object."""
    namespace: dict[str, Any] = {"Table": Table}
    exec(python_of(script.read_text(encoding="utf-8")), namespace)
    found: dict[str, Any] = namespace["check"](_table(document))
    return found


def _table(value: Any) -> Any:
    if isinstance(value, dict):
        return Table({name: _table(each) for name, each in value.items()})
    return [_table(each) for each in value] if isinstance(value, list) else value
