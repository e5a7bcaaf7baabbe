"""``statefulspark bootstrap``: make a savepoint with a state from rows in files, new or added to a savepoint."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show
from statefulspark.cli.common.storage_options import (
    BackendOption,
    EndpointOption,
    NewSavepointArgument,
    PathStyleOption,
    RegionOption,
    storage_opener,
)
from statefulspark.errors import InvalidInputError

_STDIN: Final = "-"


class Kind(StrEnum):
    """Kinds of state that rows can be given for."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="bootstrap")(bootstrap)


def bootstrap(
    rows: Annotated[
        str,
        typer.Argument(
            metavar="ROWS", help="URL or path of a Parquet or JSON lines file, or of a folder of such files; - for JSON lines on stdin."
        ),
    ],
    directory: NewSavepointArgument,
    uid: Annotated[str, typer.Option(help="uid of the keyed step.")],
    state: Annotated[str, typer.Option("--state", help="Name of the state.")],
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Column of the key, named as in the stream. Repeatable, in order. Defaults to the key in SAVEPOINT."
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of the value; several make a ROW. Repeatable. Defaults to all other columns."),
    ] = None,
    map_key: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the key within a map. A row is then one entry.")] = None,
    kind: Annotated[
        Kind | None, typer.Option(help="Kind of a new state. Defaults to map with --map-key, or else value. Rows have the accumulators.")
    ] = None,
    ttl: Annotated[str | None, typer.Option(metavar="DURATION", help="Time to live of a new state, such as 7d.")] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column that says when a value expires, in milliseconds since the epoch.")
    ] = None,
    max_parallelism: Annotated[
        int | None, typer.Option(metavar="N", help="Number of key groups (1 to 32768). Required without --from.")
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SAVEPOINT",
            help="Checkpoint or savepoint to start with. Rows replace what the state has of their keys, of maps what it has of these entries.",
        ),
    ] = None,
    new_state: Annotated[bool, typer.Option("--new-state", help="Add a state that SAVEPOINT does not have.")] = False,
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
    backend: BackendOption = None,
) -> None:
    """Make a canonical savepoint with a state from rows: of a new job, or changed in a copy of SAVEPOINT.

    The types of the columns are those of the state: cast them in ROWS. A row per key, of a map per entry. SAVEPOINT is not changed.
    """
    from statefulspark.checkpoint.catalog import open_checkpoint
    from statefulspark.checkpoint.inspect.decoding import type_text
    from statefulspark.state_tables.bootstrap.declarations import NamedColumns
    from statefulspark.state_tables.bootstrap.file_bootstrap import FileBootstrap, bootstrap_files

    is_patch = origin is not None and not new_state
    _check(max_parallelism is None and origin is None, "--max-parallelism", "is missing", "Give the maxParallelism of the job")
    _check(not key and origin is None, "--key", "is missing", "Name the columns by which the step is keyed")
    _check(new_state and origin is None, "--new-state", "can only be used with --from", "Leave it out: the state is new")
    for option, given in (("--kind", kind), ("--ttl", ttl)):
        _check(is_patch and given is not None, option, "is that of the state in SAVEPOINT", "Leave it out, or add --new-state")
    opener = storage_opener(endpoint, region, path_style, backend=backend)
    wanted = FileBootstrap(
        uid=uid,
        state=state,
        columns=NamedColumns(keys=tuple(key or ()), values=tuple(value or ()), map_key=map_key, expires=expires),
        kind=kind.value if kind is not None else "map" if map_key is not None else "value",
        ttl_ms=_milliseconds(ttl),
        is_new=new_state,
        max_parallelism=max_parallelism,
    )
    with _input(rows) as (place, is_here):
        done = bootstrap_files(
            wanted,
            place,
            directory,
            open_checkpoint(origin, opener) if origin is not None else None,
            open_store=opener,
            open_rows=storage_opener(None, None, None) if is_here else opener,
            progress=lambda what: say(f"writing {what}", err=True),
        )
    savepoint, changed = done.savepoint, "merged" if done.merged else "new"
    facts = {"uid": uid, "state": state, "kind": done.declared.kind, "type": type_text(done.declared.type.to_json()), "rows": done.rows}
    states = [{"uid": each, "state": name} for each, name in savepoint.states]
    document = {"path": savepoint.url, **facts, "changed": changed, "entries": savepoint.entries, "states": states}
    lines = [*facts.items(), ("changed", changed), ("entries of all states", savepoint.entries)]
    show(document, output, TableView(savepoint.url, ("what", "written"), lines))


def _milliseconds(ttl: str | None) -> int | None:
    from statefulspark.config.values.durations import parse_duration

    try:
        return parse_duration(ttl) if ttl is not None else None
    except InvalidInputError as error:
        raise error.named("--ttl") from None


def _check(is_wrong: bool, option: str, message: str, remedy: str) -> None:
    if is_wrong:
        raise InvalidInputError(message, field=option, remedy=remedy)


@contextmanager
def _input(rows: str) -> Iterator[tuple[str, bool]]:
    """Yield where the rows are, and True if that is a copy of standard input."""
    if rows != _STDIN:
        yield rows, False
        return
    with tempfile.TemporaryDirectory(prefix="statefulspark-stdin-") as folder:
        path = Path(folder) / "rows.jsonl"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield str(path), True
