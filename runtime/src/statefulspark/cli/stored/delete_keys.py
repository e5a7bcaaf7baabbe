"""``statefulspark delete-keys``: make a savepoint without some keys."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show
from statefulspark.cli.common.storage_options import (
    BackendOption,
    CheckpointArgument,
    EndpointOption,
    NewSavepointArgument,
    PathStyleOption,
    RegionOption,
    storage_opener,
)
from statefulspark.errors import InvalidInputError


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="delete-keys")(delete_keys)


def delete_keys(
    path: CheckpointArgument,
    directory: NewSavepointArgument,
    uid: Annotated[str, typer.Option(help="uid of the keyed step.")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="Key to delete, written as 'statefulspark state' shows it; use a JSON list for several key columns. Repeatable."),
    ] = None,
    keys_file: Annotated[
        str | None, typer.Option(help="File with one key per line, or - for standard input. Keeps keys out of process lists.")
    ] = None,
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
    backend: BackendOption = None,
) -> None:
    """Make a canonical savepoint without some keys: neither their state nor their timers. PATH is not changed."""
    from statefulspark.checkpoint.catalog import open_checkpoint
    from statefulspark.checkpoint.inspect.decoding import parse_key
    from statefulspark.state_tables.write.key_deletion import delete_keys_of, keyed_states

    opener = storage_opener(endpoint, region, path_style, backend=backend)
    texts = [*(key or ()), *_lines(keys_file)]
    origin = open_checkpoint(path, opener)
    info = keyed_states(origin, uid)[0]
    keys = [parse_key(info, text) for text in texts]
    done = delete_keys_of(origin, directory, uid, keys, open_store=opener, progress=lambda what: say(f"writing {what}", err=True))
    missing = [text for text, parsed in zip(texts, keys, strict=True) if any(parsed is each for each in done.not_found)]
    document = {"path": done.url, "deleted": done.deleted, "not_found": missing, "not_searched": done.not_searched}
    tables = [TableView(done.url, ("state", "deleted entries"), list(done.deleted.items()))]
    if missing:
        tables.append(TableView("keys that were not found", ("key",), [(text,) for text in missing]))
    if done.not_searched:
        rows = [(what,) for what in done.not_searched]
        tables.append(TableView("not searched: it has no keys, and may hold data of them", ("what",), rows))
    show(document, output, *tables)


def _lines(name: str | None) -> list[str]:
    if name is None:
        return []
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"cannot read {name}: {error}", field="--keys-file", remedy="Name a text file in UTF-8.") from error
    return [line for line in text.splitlines() if line]
