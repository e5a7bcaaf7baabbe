"""``statefulspark key-groups``: show which slot owns which key groups, and how many a rescale moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from statefulspark.cli.common.output import Output, OutputOption, TableView, show
from statefulspark.keygroups import KeyGroupRange, moves, ranges


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="key-groups")(key_groups)


def key_groups(
    max_parallelism: Annotated[int, typer.Option(help="Number of key groups of the job (1 to 32768).")],
    parallelism: Annotated[int, typer.Option(help="Number of slots (1 to max parallelism).")],
    to: Annotated[
        int | None, typer.Option(help="Number of slots after a rescale, to count the key groups that move to another slot.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show each slot's key groups. With --to, also show how many key groups a rescale moves."""
    owned = ranges(parallelism, max_parallelism)
    document: dict[str, object] = {
        "ranges": _as_json(owned),
        "moves": moves(max_parallelism, parallelism, to) if to is not None else 0,
    }
    tables = [_as_table(f"{parallelism} slots", owned)]
    if to is not None:
        target = ranges(to, max_parallelism)
        document["to_ranges"] = _as_json(target)
        tables.append(_as_table(f"{to} slots; {document['moves']} of {max_parallelism} key groups change slot", target))
    show(document, output, *tables)


def _as_json(owned: Sequence[KeyGroupRange]) -> list[dict[str, int]]:
    return [{"slot": slot, "first": each.first, "last": each.last} for slot, each in enumerate(owned)]


def _as_table(title: str, owned: Sequence[KeyGroupRange]) -> TableView:
    return TableView(title, ("slot", "first", "last", "key groups"), [(slot, e.first, e.last, e.count) for slot, e in enumerate(owned)])
