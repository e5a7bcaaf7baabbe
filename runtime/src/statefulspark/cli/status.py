"""``statefulspark status``: show the status of a running job."""

from __future__ import annotations

import typer

from statefulspark.api_server.instants import at
from statefulspark.cli.connect import CaFileOption, JobOption, TokenFileOption, connect
from statefulspark.cli.job_command import JobCommand
from statefulspark.cli.job_tables import in_progress, paths, status_tables
from statefulspark.cli.output import Output, OutputOption, show


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="status", cls=JobCommand)(status)


def status(
    job: JobOption = None, token_file: TokenFileOption = None, ca_file: CaFileOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show the state, slots, watermarks and latest checkpoints of a running job."""
    with connect(job, token_file, ca_file) as client:
        answer = client.status()
    show(answer.model_dump(mode="json"), output, *status_tables(answer))
    if output is Output.TABLE:
        for line in paths(
            ("last checkpoint", answer.last_checkpoint.path if answer.last_checkpoint else None),
            ("last savepoint", answer.last_savepoint.path if answer.last_savepoint else None),
            ("restored from", answer.restored_from),
        ):
            typer.echo(line)
        for line in in_progress(answer):
            typer.echo(line)
        if answer.failing is not None:
            count = "once" if answer.failing.failures == 1 else f"{answer.failing.failures} times in a row"
            since, error = at(answer.failing.since_ms), answer.failing.error
            typer.echo(f"failing: {count} since {since}, the last time with {error.reason}: {error.message}")
        if answer.error is not None:
            typer.echo(f"failed: {answer.error.reason}: {answer.error.message}")
