"""``statefulspark run``: run a manifest on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from statefulspark.cli.output import Output, OutputOption
from statefulspark.errors import StatefulSparkError


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="run")(run)


def run(
    manifest: Annotated[Path, typer.Argument(help="File with a StatefulSparkJob.", show_default=False)],
    parallelism: Annotated[int | None, typer.Option(help="Number of slots instead of the manifest's.", min=1)] = None,
    from_: Annotated[str | None, typer.Option("--from", help="Checkpoint or savepoint to start from; else the newest of this job.")] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop with a checkpoint when the source has nothing more.")] = False,
    master: Annotated[
        str | None, typer.Option(help="Spark master instead of the manifest's, e.g. local[4]; kubernetes: the cluster this pod runs in.")
    ] = None,
    progress: Annotated[bool | None, typer.Option(help="A live line for a person; default: when stderr is a terminal.")] = None,
    api_host: Annotated[str, typer.Option(envvar="STATEFULSPARK_API_HOST", help="Address on which the driver API listens.")] = "127.0.0.1",
    api_port: Annotated[int, typer.Option(envvar="STATEFULSPARK_API_PORT", help="Its port; 0 takes a free one.", min=0, max=65_535)] = 0,
    stop_timeout: Annotated[float, typer.Option(help="Seconds a stop on SIGTERM or SIGINT may take for its checkpoint.", min=1)] = 300.0,
    termination_log: Annotated[
        Path | None,
        typer.Option(help="Write how the job ended to this file; the exit code is then 0 for every end that a restart would not change."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a job to its end. The first SIGINT or SIGTERM stops it with a checkpoint, a second one at once.

    Ends with 0 when the job finished or was stopped, 1 when it failed, 2 when the input is wrong.
    """
    from rich.console import Console

    from statefulspark.cli.job_tables import status_tables
    from statefulspark.cli.logs import configure_logging
    from statefulspark.cli.output import show
    from statefulspark.cli.progress import LogReporter, TerminalReporter
    from statefulspark.config.manifest import load_manifest
    from statefulspark.driver import termination
    from statefulspark.driver.connection import ConnectionFile, home_directory
    from statefulspark.driver.models import StatusModel
    from statefulspark.driver.remedies import what_to_do
    from statefulspark.driver.run import RunSettings, run_job
    from statefulspark.driver.server import ServerSettings
    from statefulspark.driver.signals import Interrupted
    from statefulspark.driver.tokens import claim_token
    from statefulspark.job.controls import JobControls

    with _settling(termination_log):
        job = load_manifest(manifest)
    console = Console(stderr=True)
    live = console.is_terminal if progress is None else progress
    configure_logging(console if live else None)
    token = claim_token(os.environ)

    def start() -> JobControls:
        from statefulspark.job.start import RunOptions, start_job

        return start_job(job, RunOptions(parallelism=parallelism, restore_from=from_, until_idle=until_idle, master=master))

    reporter = TerminalReporter(console, clock_s=time.monotonic, clock_ms=_now_ms) if live else LogReporter(clock_s=time.monotonic)
    try:
        with _settling(termination_log), reporter:
            result = run_job(
                start,
                claim=ConnectionFile(home_directory(os.environ, Path.home()), job.metadata.name),
                token=token,
                settings=RunSettings(server=ServerSettings(host=api_host, port=api_port), stop_timeout_s=stop_timeout),
                reporter=reporter,
                clock_ms=_now_ms,
            )
    except Interrupted as interrupted:
        typer.echo(f"{interrupted}: stopped at once; run the manifest again to go on after the last committed batch", err=True)
        _leave(interrupted.exit_code)
    status = StatusModel.of(result.status)
    show(status.model_dump(mode="json"), output, *status_tables(status))
    if status.error is not None:
        typer.echo(f"error: job {status.name} failed ({status.error.reason})\n{status.error.message}", err=True)
    if advice := what_to_do(result.status):
        typer.echo(advice, err=True)
    if result.abandoned:
        _leave(result.exit_code)
    if termination_log is not None:
        termination.write(termination_log, termination.of_status(result.status))
        raise typer.Exit
    raise typer.Exit(result.exit_code)


@contextmanager
def _settling(termination_log: Path | None) -> Iterator[None]:
    """Turn an error that a restart would not change into a termination message and exit code 0."""
    from statefulspark.driver import termination

    try:
        yield
    except StatefulSparkError as error:
        if termination_log is None or not termination.settled(error):
            raise
        typer.echo(f"error: {error}", err=True)
        termination.write(termination_log, termination.of_error(error))
        raise typer.Exit from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _leave(code: int) -> NoReturn:
    """End without running exit hooks: Spark's wait for the very tasks that are being abandoned."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
