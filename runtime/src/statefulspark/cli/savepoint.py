"""``statefulspark savepoint``: take a savepoint of a running job."""

from __future__ import annotations

from typing import Annotated

import typer

from statefulspark.cli.connect import CaFileOption, JobOption, TimeoutOption, TokenFileOption, connect
from statefulspark.cli.job_tables import paths, snapshot_table
from statefulspark.cli.output import Output, OutputOption, say_waiting, show


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="savepoint")(savepoint)


def savepoint(
    job: JobOption,
    target: Annotated[
        str | None, typer.Option(help="URL of the directory in which to create the savepoint. Defaults to the manifest's savepointDir.")
    ] = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a savepoint of a running job: a self-contained directory with its complete state, which the job never deletes."""
    with connect(job, token_file, ca_file) as client:
        say_waiting("waiting for the savepoint", timeout)
        info = client.savepoint(target=target, timeout_s=timeout)
    show(info.model_dump(mode="json"), output, snapshot_table(info))
    if output is Output.TABLE:
        for line in paths(("path", info.path)):
            typer.echo(line)
