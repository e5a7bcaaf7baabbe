"""What commands print: one JSON document for programs, or tables for people.

The document is the complete answer; tables show the same facts. Both go to stdout, everything else (progress, errors) to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_STDOUT: Final = 1
_STDERR: Final = 2


class Output(StrEnum):
    """How a command prints its answer."""

    JSON = "json"
    TABLE = "table"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format: json or table.")]
"""The ``-o`` option that every command with an answer takes."""


@dataclass(frozen=True, slots=True)
class TableView:
    """One table of an answer; numbers and the columns named in ``right`` are aligned to the right, None is shown as a dash.

    Where there are columns named in ``whole``, these keep their width: the texts of the others go on in further lines instead.
    """

    title: str
    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    right: Sequence[str] = ()
    whole: Sequence[str] = ()


def show(document: Any, output: Output, *tables: TableView) -> None:
    """Print the answer of a command.

    Args:
        document: The whole answer, JSON-able; printed as one line.
        output: What the person asked for.
        *tables: The same facts for people, printed in order.
    """
    if output is Output.JSON:
        typer.echo(json.dumps(document))
        return
    console = Console(soft_wrap=True)
    for view in tables:
        console.print(_rendered(view))


@contextmanager
def kept_for_answer(output: Output) -> Iterator[None]:
    """Meanwhile, send to stderr what the user's code, its child processes and Spark's JVM print, if the answer on stdout is one JSON document.

    Args:
        output: What the person asked for; tables may have other lines before them.
    """
    held = sys.stdout  # the user's code may have kept it too
    # None: closed at the start, so nobody reads the answer, and the descriptor may be that of another file by now.
    if output is not Output.JSON or held is None or sys.stderr is None:
        yield
        return
    stdout = os.dup(_STDOUT)
    # Processes that start meanwhile inherit the descriptor, and do not know sys.stdout.
    os.dup2(_STDERR, _STDOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        held.flush()
        os.dup2(stdout, _STDOUT)
        os.close(stdout)


def printable(text: str) -> str:
    """Return the text with control characters as escapes: what a job or its data says must not control the terminal."""
    return "".join(each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text)


def say(text: str, *, err: bool = False) -> None:
    """Print a line for people, which may have a job's texts in it."""
    typer.echo(printable(text), err=err)


def _text(cell: object) -> Text:
    """Return a cell as it is: a string would be read as rich's markup, in which ``[name]`` disappears and ``[/name]`` is an error."""
    return Text(printable("-" if cell is None else str(cell)))


def _rendered(view: TableView) -> Table:
    rows = [tuple(row) for row in view.rows]
    title = _text(view.title)
    title.stylize("table.title")
    table = Table(title=title, title_justify="left")
    for position, column in enumerate(view.columns):
        numeric = bool(rows) and all(row[position] is None or _is_number(row[position]) for row in rows)
        justify: Literal["left", "right"] = "right" if numeric or column in view.right else "left"
        overflow: Literal["fold", "ellipsis"] = "fold" if view.whole else "ellipsis"
        table.add_column(_text(column), justify=justify, no_wrap=column in view.whole, overflow=overflow)
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)
