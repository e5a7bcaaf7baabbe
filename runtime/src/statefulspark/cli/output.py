"""What commands print: one JSON document for programs, or tables for people.

The document is the complete answer; tables show the same facts. Both go to stdout, everything else (progress, errors) to stderr.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


class Output(StrEnum):
    """How a command prints its answer."""

    JSON = "json"
    TABLE = "table"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format: json or table.")]
"""The ``-o`` option that every command with an answer takes."""


@dataclass(frozen=True, slots=True)
class TableView:
    """One table of an answer; numbers and the columns named in ``right`` are aligned to the right, None is shown as a dash."""

    title: str
    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    right: Sequence[str] = ()


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


def _rendered(view: TableView) -> Table:
    rows = [tuple(row) for row in view.rows]
    table = Table(title=view.title, title_justify="left")
    for position, column in enumerate(view.columns):
        numeric = bool(rows) and all(row[position] is None or _is_number(row[position]) for row in rows)
        table.add_column(column, justify="right" if numeric or column in view.right else "left")
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    return table


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)
