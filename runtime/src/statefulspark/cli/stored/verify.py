"""``statefulspark verify``: check that a checkpoint can be restored."""

from __future__ import annotations

import dataclasses

import typer

from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show
from statefulspark.cli.common.storage_options import (
    BackendOption,
    CheckpointArgument,
    EndpointOption,
    PathStyleOption,
    RegionOption,
    bytes_text,
    storage_opener,
)

_EXIT_DAMAGED = 1


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="verify")(verify)


def verify(
    path: CheckpointArgument,
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
    backend: BackendOption = None,
) -> None:
    """Check the size and checksum of every file, then open each slot's store and read every key. Exits with 1 if anything is damaged."""
    from statefulspark.checkpoint.inspect.verify import verify as run

    report = run(
        path,
        open_store=storage_opener(endpoint, region, path_style, backend=backend),
        progress=lambda what: say(f"verifying {what}", err=True),
    )
    document = dataclasses.asdict(report) | {"sound": report.sound}
    facts: list[tuple[object, object]] = [
        ("result", "sound" if report.sound else "damaged"),
        ("files", report.files),
        ("size", bytes_text(report.size_bytes)),
        ("entries", report.entries),
    ]
    tables = [TableView(report.url, ("what", "found"), facts)]
    if not report.sound:
        tables.append(TableView("damaged", ("problem",), [(problem,) for problem in report.problems]))
    show(document, output, *tables)
    if not report.sound:
        say(_advice(report.alternative), err=True)
        raise typer.Exit(_EXIT_DAMAGED)


def _advice(alternative: str | None) -> str:
    if alternative is None:
        return "error: damaged, and there is no older checkpoint. Restore from a savepoint"
    return f"error: damaged. Verify and use the previous checkpoint instead: {alternative}"
