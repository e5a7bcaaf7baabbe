"""``statefulspark stop``: end a running job and keep its state."""

from __future__ import annotations

from typing import Annotated

import typer

from statefulspark.cli.connect import JobOption, TimeoutOption, TokenFileOption, connect
from statefulspark.cli.job_tables import paths, snapshot_table
from statefulspark.cli.output import Output, OutputOption, show
from statefulspark.errors import InvalidInputError


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="stop")(stop)


def stop(
    job: JobOption,
    savepoint: Annotated[bool, typer.Option(help="Take a savepoint first; otherwise a checkpoint.")] = True,
    target: Annotated[str | None, typer.Option(help="URL below which the savepoint's folder is made; else the manifest's.")] = None,
    drain: Annotated[bool, typer.Option("--drain", help="Fire every event-time timer first; the job is then finished.")] = False,
    token_file: TokenFileOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """End a running job after its current batch, with a savepoint (or a checkpoint) it can go on from."""
    if target is not None and not savepoint:
        raise InvalidInputError("is only for savepoints", field="--target", remedy="Leave out --no-savepoint or --target")
    with connect(job, token_file) as client:
        answer = client.stop(savepoint=savepoint, target=target, drain=drain, timeout_s=timeout)
    show(answer.model_dump(mode="json"), output, *([snapshot_table(answer.checkpoint)] if answer.checkpoint else []))
    if output is Output.TABLE:
        for line in paths(("path", answer.checkpoint.path if answer.checkpoint else None)):
            typer.echo(line)
        typer.echo(f"job {answer.state}")
