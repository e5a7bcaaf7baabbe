"""What a benchmark says: the one small model that every script here fills, that is kept as JSON and that `document.py` renders.

A script of this folder measures when it is run, prints its tables, and with ``--result FILE`` writes this model there. ``run.py`` runs
such scripts and takes their sections into `docs/benchmarks.md`; to add a benchmark, write a script and name it in `run.py`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as PrintedTable

VERSION = 1
"""Of the JSON form; a reader refuses others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A wanted figure and the measured one."""

    what: str
    wanted: float
    measured: float
    unit: str
    at_least: bool
    """Whether more is better."""

    @property
    def met(self) -> bool:
        """Whether the measured figure is good enough."""
        return self.measured >= self.wanted if self.at_least else self.measured <= self.wanted

    @property
    def verdict(self) -> str:
        """Met or missed, and by which share of the wanted figure."""
        distance = abs(self.measured - self.wanted) / self.wanted
        return f"{'met' if self.met else 'missed'} by {distance:.0%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Figures as they are shown; numbers are rounded and formatted already."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How busy the machine was with other work just before something was measured."""

    before: str
    """What was measured next."""
    load_1m: float
    """Load average of one minute; an earlier contender of the same run counts in it."""
    busy: float
    """Share of all cores in use over half a second while the benchmark itself did nothing, 0 .. 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run of one benchmark."""

    name: str
    """Of the script, without ``.py``."""
    title: str
    about: str
    """What is measured and how, in a few sentences of Markdown."""
    command: str
    started: str
    """ISO time, UTC."""
    seconds: float
    machine: str
    commit: str
    loads: tuple[Load, ...]
    targets: tuple[Target, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)
    """Raw figures, for whoever reads the JSON."""
    plot: str | None = None
    """File name of the picture, which lies beside the JSON."""
    version: int = VERSION

    def to_json(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self), indent=1) + "\n"


def from_json(text: str) -> Result:
    """Read a kept result.

    Raises:
        ValueError: it has another version.
    """
    data = json.loads(text)
    if data["version"] != VERSION:
        raise ValueError(f"result version {data['version']} is not {VERSION}: run the benchmark again")
    return Result(
        **data
        | {
            "loads": tuple(Load(**each) for each in data["loads"]),
            "targets": tuple(Target(**each) for each in data["targets"]),
            "tables": tuple(
                Table(title=each["title"], columns=tuple(each["columns"]), rows=tuple(map(tuple, each["rows"]))) for each in data["tables"]
            ),
            "notes": tuple(data["notes"]),
        }
    )


def arguments_of(about: str | None) -> argparse.ArgumentParser:
    """The options that every script has; scripts add theirs."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, help="write the result there as JSON; pictures go beside it")
    return parser


def keep(result: Result, path: Path | None) -> None:
    """Print the result, and write it when there is a path."""
    console = Console()
    for table in result.tables:
        printed = PrintedTable(*table.columns, title=table.title or None)
        for row in table.rows:
            printed.add_row(*row)
        console.print(printed)
    for target in result.targets:
        console.print(f"{target.what}: {figure(target.measured)} {target.unit}, wanted {target.wanted:,.6g}: {target.verdict}")
    for note in result.notes:
        console.print(note)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(result.to_json())


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Smallest and largest of some repetitions."""
    return f"{min(values):,.{digits}f} - {max(values):,.{digits}f}"


def figure(value: float) -> str:
    """A measured figure: with one digit, a ratio of 0.054 would be told as 0.1."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"
