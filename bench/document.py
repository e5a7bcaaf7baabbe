"""`docs/benchmarks.md`: each benchmark has a section between two marks, which is replaced without touching anything else.

What stands outside of the marks is written by hand. The summary of targets at the top is read off the sections, so it needs no memory
of earlier runs.
"""

from __future__ import annotations

import re
from pathlib import Path

from results import Load, Result, Table, Target, figure

_HEAD = """# Benchmarks

Written by `make bench` and `make soak` (see `bench/`). Each section says when, where and beside how much other work it was measured:
read the ratios, not the digits. Contenders of one table ran side by side in one run, in turns.

"""
_SUMMARY = "targets"
_TARGET_COLUMNS = ("target", "wanted", "measured", "verdict")


def with_result(document: str, result: Result, *, pictures: str) -> str:
    """The document with the section of ``result`` put in or replaced.

    Args:
        document: the present text, empty for a new one.
        result: what was measured.
        pictures: folder of the result's picture as the document refers to it.
    """
    text = document or _HEAD + _marked(_SUMMARY, "") + "\n"
    text = _put(text, result.name, section(result, pictures=pictures))
    return _put(text, _SUMMARY, _summary(text))


def section(result: Result, *, pictures: str) -> str:
    """A section in Markdown."""
    parts = [f"## {result.title}", result.about]
    if result.targets:
        parts.append(_table(Table(columns=_TARGET_COLUMNS, rows=tuple(_target_row(target) for target in result.targets))))
    parts += [_table(table) for table in result.tables]
    parts += result.notes
    if result.plot is not None:
        parts.append(f"![{result.title}]({pictures}/{result.plot})")
    parts.append(f"`{result.command}`, {result.started}, {result.seconds:,.0f} s, commit {result.commit}; {result.machine}.")
    if result.loads:
        parts.append("Other work before each part: " + "; ".join(_load(load) for load in result.loads) + ".")
    return "\n\n".join(parts)


def update(path: Path, result: Result, *, pictures: str) -> None:
    """Replace a section of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(with_result(path.read_text() if path.exists() else "", result, pictures=pictures))


def _target_row(target: Target) -> tuple[str, ...]:
    bound = "at least" if target.at_least else "at most"
    wanted = f"{bound} {target.wanted:,.6g} {target.unit}"
    verdict = target.verdict if target.met else f"**{target.verdict}**"
    return target.what, wanted, f"{figure(target.measured)} {target.unit}", verdict


def _load(load: Load) -> str:
    return f"{load.before} load {load.load_1m:.1f}, {load.busy:.0%} of the cores busy"


def _table(table: Table) -> str:
    lines = [f"**{table.title}**", ""] if table.title else []
    lines.append("| " + " | ".join(table.columns) + " |")
    lines.append("|---" * len(table.columns) + "|")
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table.rows]
    return "\n".join(lines)


def _summary(text: str) -> str:
    """All rows of all tables of targets, in the order of the sections."""
    head = _table(Table(columns=_TARGET_COLUMNS, rows=()))
    body = text.replace(_marked(_SUMMARY, _inner(text, _SUMMARY) or ""), "")
    rows = [row for block in re.findall(re.escape(head) + r"((?:\n\|.*)*)", body) for row in block.splitlines() if row]
    return "\n".join([head, *rows]) if rows else ""


def _marked(name: str, content: str) -> str:
    return f"<!-- {name}: begin -->\n{content}\n<!-- {name}: end -->\n"


def _inner(text: str, name: str) -> str | None:
    found = re.search(rf"<!-- {name}: begin -->\n(.*?)\n<!-- {name}: end -->\n", text, re.DOTALL)
    return found[1] if found else None


def _put(text: str, name: str, content: str) -> str:
    old = _inner(text, name)
    if old is None:
        return text.rstrip("\n") + "\n\n" + _marked(name, content)
    return text.replace(_marked(name, old), _marked(name, content))
