"""``statefulspark run``: run a job on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from statefulspark.cli.output import Output, OutputOption
from statefulspark.errors import InvalidInputError, StatefulSparkError

if TYPE_CHECKING:
    from statefulspark.api_server.run_job import RunResult
    from statefulspark.coordinator.controls import JobControls


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="run")(run)


def run(
    manifest: Annotated[Path, typer.Argument(help="Manifest of a StatefulSparkJob.", show_default=False)],
    parallelism: Annotated[int | None, typer.Option(help="Number of slots. Overrides the manifest.", min=1)] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="Checkpoint or savepoint to restore. Defaults to the job's latest state.")
    ] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop with a checkpoint when the sources have no more data.")] = False,
    drain: Annotated[bool, typer.Option("--drain", help="With --until-idle: fire all event-time timers before stopping.")] = False,
    master: Annotated[
        str | None,
        typer.Option(
            help="Spark master, for example local[4], or kubernetes for the cluster that this pod runs in. Overrides the manifest."
        ),
    ] = None,
    progress: Annotated[bool | None, typer.Option(help="Show a live progress line. Defaults to true if stderr is a terminal.")] = None,
    api_host: Annotated[
        str | None,
        typer.Option(envvar="STATEFULSPARK_API_HOST", help="Listen address of the driver API. Overrides spec.api.host of the manifest."),
    ] = None,
    api_port: Annotated[
        int | None,
        typer.Option(
            envvar="STATEFULSPARK_API_PORT",
            help="Port of the driver API, or 0 to pick a free port. Overrides spec.api.port.",
            min=0,
            max=65_535,
        ),
    ] = None,
    stop_timeout: Annotated[
        float, typer.Option(help="Timeout in seconds for the checkpoint taken when the job is stopped by a signal.", min=1)
    ] = 300.0,
    termination_log: Annotated[
        Path | None,
        typer.Option(help="Write the job's outcome to this file. The exit code is then 0 unless a restart could change the outcome."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a job until it finishes. The first SIGINT, SIGTERM or SIGHUP stops it with a checkpoint; a second one stops it immediately.

    Exits with 0 if the job finished or was stopped, 1 if it failed, and 2 if the input is invalid.
    """
    from statefulspark.config.default_backend import default_state_backend
    from statefulspark.config.manifest import load_manifest

    if drain and not until_idle:
        raise InvalidInputError(
            "requires --until-idle", field="--drain", remedy="Add --until-idle, or drain a running job with statefulspark stop"
        )
    with _settling(termination_log):
        job = load_manifest(manifest, default_backend=default_state_backend(os.environ))

    def start() -> JobControls:
        from statefulspark.job.start import RunOptions, start_job

        options = RunOptions(parallelism=parallelism, restore_from=from_, until_idle=until_idle, drain=drain, master=master)
        return start_job(job, options)

    api = job.spec.api
    listen = (api.host if api_host is None else api_host, api.port if api_port is None else api_port)
    result = _supervised(job.metadata.name, start, listen, stop_timeout, progress=progress, termination_log=termination_log)
    _end(result, output, termination_log)


def _supervised(
    name: str,
    start: Callable[[], JobControls],
    listen: tuple[str, int],
    stop_timeout_s: float,
    *,
    progress: bool | None,
    termination_log: Path | None,
) -> RunResult:
    """Start a job, serve its API, show its progress and wait for its end; leaves the process if a second signal interrupts that."""
    from rich.console import Console

    from statefulspark.api_server.connection_files import ConnectionFile, home_directory
    from statefulspark.api_server.run_job import RunSettings, run_job
    from statefulspark.api_server.server import ServerSettings
    from statefulspark.api_server.signals import Interrupted
    from statefulspark.api_server.tokens import claim_token
    from statefulspark.cli.logs import configure_logging
    from statefulspark.cli.progress import LogReporter, TerminalReporter
    from statefulspark.rpc.certificates import CertificateFolder

    console = Console(stderr=True)
    live = console.is_terminal if progress is None else progress
    configure_logging(console if live else None)
    token = claim_token(os.environ)
    with _settling(termination_log):
        server = ServerSettings(host=listen[0], port=listen[1], certificates=CertificateFolder.of(os.environ))
    reporter = TerminalReporter(console, clock_s=time.monotonic, clock_ms=_now_ms) if live else LogReporter(clock_s=time.monotonic)
    try:
        with _settling(termination_log), reporter:
            return run_job(
                start,
                claim=ConnectionFile(home_directory(os.environ, Path.home()), name),
                token=token,
                settings=RunSettings(server=server, stop_timeout_s=stop_timeout_s),
                reporter=reporter,
                clock_ms=_now_ms,
            )
    except Interrupted as interrupted:
        typer.echo(f"{interrupted}: stopped immediately; run the manifest again to resume after the last committed batch", err=True)
        _leave(interrupted.exit_code)


def _end(result: RunResult, output: Output, termination_log: Path | None) -> NoReturn:
    """Print how the job ended and exit."""
    from statefulspark.api_server import termination
    from statefulspark.api_server.models import StatusModel
    from statefulspark.api_server.remedies import what_to_do
    from statefulspark.cli.job_tables import status_tables
    from statefulspark.cli.output import show

    status = StatusModel.of(result.status)
    show(status.model_dump(mode="json"), output, *status_tables(status))
    if status.error is not None:
        typer.echo(f"error: job {status.name} failed ({status.error.reason})\n{status.error.message}", err=True)
    if advice := what_to_do(result.status):
        typer.echo(advice, err=True)
    if result.abandoned:
        _leave(result.exit_code)
    if termination_log is not None:
        termination.write(termination_log, termination.of_status(result.status, result.kept))
        raise typer.Exit
    raise typer.Exit(result.exit_code)


@contextmanager
def _settling(termination_log: Path | None) -> Iterator[None]:
    """Turn an error that a restart would not change into a termination message and exit code 0."""
    from statefulspark.api_server import termination

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
