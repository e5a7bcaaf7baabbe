"""``statefulspark savepoint``: take a savepoint of a running job."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from statefulspark.cli.common.connect import CaFileOption, JobOption, TimeoutOption, TokenFileOption, connect
from statefulspark.cli.common.job_command import JobCommand
from statefulspark.cli.common.job_tables import paths, snapshot_table, without_table
from statefulspark.cli.common.output import Output, OutputOption, say, show
from statefulspark.cli.common.waiting import waiting


class Format(StrEnum):
    """Formats of a savepoint."""

    NATIVE = "native"
    CANONICAL = "canonical"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="savepoint", cls=JobCommand)(savepoint)


def savepoint(
    job: JobOption = None,
    target: Annotated[
        str | None, typer.Option(help="URL of the directory in which to create the savepoint. Defaults to the manifest's savepointDir.")
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="native: the files of the job's state backend. canonical: Parquet, for every state backend.")
    ] = Format.NATIVE,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a savepoint of a running job: a self-contained directory with its complete state, which the job never deletes."""
    with connect(job, token_file, ca_file) as client, waiting(client, "waiting for the savepoint", timeout):
        info = client.savepoint(target=target, timeout_s=timeout, form=form.value)
    show(info.model_dump(mode="json"), output, snapshot_table(info), *without_table(info.without_table))
    if output is Output.TABLE:
        for line in paths(("path", info.path)):
            say(line)
