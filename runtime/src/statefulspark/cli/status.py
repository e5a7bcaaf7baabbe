"""``statefulspark status``: one look at a running job."""

from __future__ import annotations

import typer

from statefulspark.cli.connect import JobOption, TokenFileOption, connect
from statefulspark.cli.job_tables import paths, status_tables
from statefulspark.cli.output import Output, OutputOption, show


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="status")(status)


def status(job: JobOption, token_file: TokenFileOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show state, slots, watermarks and last checkpoints of a running job."""
    with connect(job, token_file) as client:
        answer = client.status()
    show(answer.model_dump(mode="json"), output, *status_tables(answer))
    if output is Output.TABLE:
        for line in paths(
            ("last checkpoint", answer.last_checkpoint.path if answer.last_checkpoint else None),
            ("last savepoint", answer.last_savepoint.path if answer.last_savepoint else None),
            ("restored from", answer.restored_from),
        ):
            typer.echo(line)
        if answer.error is not None:
            typer.echo(f"failed: {answer.error.reason}: {answer.error.message}")
