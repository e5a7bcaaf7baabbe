"""``statefulspark convert``: make a canonical savepoint of a checkpoint or savepoint."""

from __future__ import annotations

import typer

from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show
from statefulspark.cli.common.storage_options import (
    BackendOption,
    CheckpointArgument,
    EndpointOption,
    NewSavepointArgument,
    PathStyleOption,
    RegionOption,
    bytes_text,
    storage_opener,
)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="convert")(convert)


def convert(
    path: CheckpointArgument,
    directory: NewSavepointArgument,
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
    backend: BackendOption = None,
) -> None:
    """Make a canonical savepoint: Parquet files that any program reads and any state backend restores. PATH is not changed."""
    from statefulspark.state_tables.canonical.conversion import convert_to_canonical

    made = convert_to_canonical(
        path,
        directory,
        open_store=storage_opener(endpoint, region, path_style, backend=backend),
        progress=lambda what: say(f"converting {what}", err=True),
    )
    files = list(made.metadata.files())
    size_bytes = sum(file.size_bytes for file in files)
    tables_bytes = sum(table.size_bytes for table in made.metadata.tables)
    missing = [{"uid": uid, "state": state, "reason": reason} for (uid, state), reason in made.without_table.items()]
    document = {
        "path": made.url,
        "files": len(files),
        "size_bytes": size_bytes,
        "tables_bytes": tables_bytes,
        "entries": made.entries,
        "without_table": missing,
    }
    facts: list[tuple[object, object]] = [
        ("files", len(files)),
        ("size", bytes_text(size_bytes)),
        ("of it tables", bytes_text(tables_bytes)),
        ("entries", made.entries),
    ]
    tables = [TableView(made.url, ("what", "written"), facts)]
    if missing:
        rows = [tuple(each.values()) for each in missing]
        tables.append(TableView("states without a table, which a restore has nevertheless", ("uid", "state", "reason"), rows))
    show(document, output, *tables)
