"""``statefulspark snapshot``: describe a checkpoint or savepoint in storage, or dispose of a savepoint.

On Kubernetes the operator has a pod of the job run these: storage is opened with the job's identity, never with the operator's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statefulspark.cli.common.groups import CommandGroup
from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show
from statefulspark.cli.common.storage_options import EndpointOption, PathStyleOption, RegionOption, bytes_text, storage_opener, time_text
from statefulspark.errors import StatefulSparkError

if TYPE_CHECKING:
    from statefulspark.checkpoint.inspect.reports import SnapshotReport

CaBundleOption = Annotated[
    str | None, typer.Option("--ca-bundle", help="PEM file with the certificate authorities to trust for the endpoint.")
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Also write the result or the error to this file (format: docs/formats.md).")
]
PathArgument = Annotated[str, typer.Argument(help="URL or path of a checkpoint or savepoint.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(help="Describe or dispose of a snapshot in storage.", cls=CommandGroup, no_args_is_help=True)
    group.command(name="describe")(describe)
    group.command(name="dispose")(dispose)
    app.add_typer(group, name="snapshot")


def describe(
    path: PathArgument,
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
    ca_bundle: CaBundleOption = None,
    report: ReportOption = None,
) -> None:
    """Show the number, kind, time and size of the checkpoint or savepoint at PATH."""
    from statefulspark.checkpoint.catalog import open_checkpoint
    from statefulspark.checkpoint.inspect.reports import SnapshotFacts, SnapshotReport

    with _reported(report) as write:
        facts = SnapshotFacts.of(open_checkpoint(path, storage_opener(endpoint, region, path_style, ca_bundle)))
        write(SnapshotReport(snapshot=facts))
    document = dataclasses.asdict(facts)
    shown = document | {"size_bytes": bytes_text(facts.size_bytes), "completed_ms": time_text(facts.completed_ms)}
    names = {"size_bytes": "size", "completed_ms": "completed (UTC)"}
    show(document, output, TableView(path, ("what", "found"), [(names.get(name, name), value) for name, value in shown.items()]))


def dispose(
    path: PathArgument,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
    ca_bundle: CaBundleOption = None,
    report: ReportOption = None,
) -> None:
    """Delete the savepoint at PATH with all its files. Succeeds if the savepoint is already gone. Refuses to delete a checkpoint."""
    from statefulspark.checkpoint.inspect.reports import SnapshotReport
    from statefulspark.checkpoint.write.disposal import dispose_savepoint

    with _reported(report) as write:
        there = dispose_savepoint(path, storage_opener(endpoint, region, path_style, ca_bundle))
        write(SnapshotReport(disposed=True))
    say(f"{path} is deleted" if there else f"{path} does not exist", err=True)


@contextmanager
def _reported(path: Path | None) -> Iterator[Callable[[SnapshotReport], None]]:
    """Yields the function that writes the report. Errors are reported too, then raised again."""
    from statefulspark.checkpoint.inspect.reports import SnapshotReport

    def write(report: SnapshotReport) -> None:
        if path is not None:
            path.write_bytes(report.encode())

    try:
        yield write
    except StatefulSparkError as error:
        write(SnapshotReport.of_error(error))
        raise
