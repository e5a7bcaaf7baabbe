"""``statefulspark stop``: stop a running job and keep its state."""

from __future__ import annotations

from typing import Annotated

import typer

from statefulspark.cli.common.connect import CaFileOption, JobOption, TimeoutOption, TokenFileOption, connect
from statefulspark.cli.common.job_command import JobCommand
from statefulspark.cli.common.job_tables import paths, snapshot_table, without_table
from statefulspark.cli.common.output import Output, OutputOption, say, show
from statefulspark.cli.common.waiting import waiting
from statefulspark.cli.driver.savepoint import Format
from statefulspark.errors import InvalidInputError


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="stop", cls=JobCommand)(stop)


def stop(
    job: JobOption = None,
    savepoint: Annotated[
        bool | None,
        typer.Option(help="Stop with a savepoint or only with a checkpoint. Defaults to a savepoint if --target or savepointDir is set."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="URL of the directory in which to create the savepoint. Defaults to the manifest's savepointDir.")
    ] = None,
    form: Annotated[
        Format | None, typer.Option("--format", help="native (default), or canonical: Parquet, for every state backend; takes longer.")
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="Fire all event-time timers before stopping, which finishes the job.")] = False,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop a running job after its current batch, with a savepoint or checkpoint from which it can resume."""
    if target is not None and savepoint is False:
        raise InvalidInputError("can only be used with a savepoint", field="--target", remedy="Remove --no-savepoint or --target")
    if form is not None and savepoint is False:
        raise InvalidInputError("can only be used with a savepoint", field="--format", remedy="Remove --no-savepoint or --format")
    with connect(job, token_file, ca_file) as client, waiting(client, "waiting for the job to stop", timeout):
        answer = client.stop(
            savepoint=savepoint, target=target, drain=drain, timeout_s=timeout, form=form.value if form is not None else None
        )
    taken = answer.checkpoint
    show(answer.model_dump(mode="json"), output, *([snapshot_table(taken), *without_table(taken.without_table)] if taken else []))
    if output is Output.TABLE:
        for line in paths(("path", answer.checkpoint.path if answer.checkpoint else None)):
            say(line)
        say(f"job {answer.state}")
