"""``statefulspark run``: run a job on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from statefulspark.cli.common.output import Output, OutputOption, kept_for_answer, say
from statefulspark.config.claim_mode import ClaimMode
from statefulspark.errors import InvalidInputError, StatefulSparkError
from statefulspark.logs.levels import LogLevel
from statefulspark.logs.redaction import redact
from statefulspark.logs.shared_credentials import environment_secrets, shared_secrets

if TYPE_CHECKING:
    from statefulspark.api_server.run.last_runs import LastRun
    from statefulspark.api_server.run.run_job import RunResult
    from statefulspark.cli.launch.run_logs import RunLogs
    from statefulspark.config.job import StatefulSparkJob
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
    claim_mode: Annotated[
        ClaimMode | None,
        typer.Option(
            help="Owner of the savepoint that the job starts from: CLAIM lets the job delete it after its first checkpoint. Overrides the manifest.",
            case_sensitive=False,
        ),
    ] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop with a checkpoint when the sources have no more data.")] = False,
    drain: Annotated[bool, typer.Option("--drain", help="With --until-idle: fire all event-time timers before stopping.")] = False,
    master: Annotated[
        str | None,
        typer.Option(
            help="Spark master, for example local[4], or kubernetes for the cluster that this pod runs in. Overrides the manifest."
        ),
    ] = None,
    shared_dir: Annotated[
        bool, typer.Option("--shared-dir", help="Take a file:// checkpoint directory that other users of this machine own or may write.")
    ] = False,
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
    log_file: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="File for the log of Spark and its JVM, or - for stderr. Defaults to logs/NAME.log in the home directory (~/.statefulspark), "
            "and to - with --master kubernetes.",
            show_default=False,
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(help="Minimum level of the log records of your code, in functions too.", case_sensitive=False)
    ] = LogLevel.INFO,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a job until it finishes. The first SIGINT, SIGTERM or SIGHUP stops it with a checkpoint; a second one stops it immediately.

    Exits with 0 if the job finished or was stopped, 1 if it failed, and 2 if the input is invalid.
    """
    from statefulspark.api_server.run.last_runs import recorded
    from statefulspark.api_server.run.remedies import what_to_do
    from statefulspark.api_server.tokens import claim_token
    from statefulspark.cli.launch.run_logs import run_logs
    from statefulspark.config.default_backend import default_state_backend
    from statefulspark.config.manifest import load_manifest

    if drain and not until_idle:
        raise InvalidInputError(
            "requires --until-idle", field="--drain", remedy="Add --until-idle, or drain a running job with statefulspark stop"
        )
    if claim_mode is ClaimMode.CLAIM and from_ is None:
        raise InvalidInputError("CLAIM requires --from", field="--claim-mode", remedy="Add --from with the path of a savepoint")
    with _settling(termination_log):
        job = load_manifest(manifest, default_backend=default_state_backend(os.environ))

    api, token = job.spec.api, claim_token(os.environ)
    secrets = [token, *_storage_secrets(job)]
    with (
        _settling(termination_log),
        run_logs(job.metadata.name, log_file, log_level, progress=progress, master=master, secrets=secrets) as logs,
        kept_for_answer(output),
        recorded(last := _run_of(job, manifest, logs)) as begin,
    ):

        def start() -> JobControls:
            from statefulspark.job.start.start_job import RunOptions, start_job

            begin()
            options = RunOptions(
                parallelism=parallelism,
                restore_from=from_,
                claim_mode=claim_mode,
                until_idle=until_idle,
                drain=drain,
                master=master,
                shared_dir=shared_dir,
                spark_output=logs.spark_output,
                slot_logs=logs.slots,
            )
            return start_job(job, options)

        listen = (api.host if api_host is None else api_host, api.port if api_port is None else api_port)
        result = _supervised(job.metadata.name, start, listen, stop_timeout, token=token, logs=logs)
        last.end(result.status.state, result.status.error, what_to_do(result.status))
    _end(result, output, termination_log, logs)


def _run_of(job: StatefulSparkJob, manifest: Path, logs: RunLogs) -> LastRun:
    """Return the record of this run, to be written once the job's name is claimed."""
    from statefulspark.api_server.run.last_runs import LastRun, now_ms
    from statefulspark.checkpoint.formats.paths import folder_url

    checkpointing = job.spec.checkpointing
    return LastRun(
        name=job.metadata.name,
        started_ms=now_ms(),
        manifest=str(manifest.absolute()),
        directory=folder_url(checkpointing.dir, job.metadata.uid or job.metadata.name),
        endpoint=checkpointing.storage.endpoint,
        region=checkpointing.storage.region,
        path_style=checkpointing.storage.path_style,
        log_file=str(logs.file.path) if logs.file is not None else None,
    )


def _supervised(
    name: str, start: Callable[[], JobControls], listen: tuple[str, int], stop_timeout_s: float, *, token: str, logs: RunLogs
) -> RunResult:
    """Start a job, serve its API, show its progress and wait for its end; leaves the process if a second signal interrupts that."""
    from statefulspark.api_server.run.connection_files import ConnectionFile, home_directory
    from statefulspark.api_server.run.run_job import RunSettings, run_job
    from statefulspark.api_server.run.signals import Interrupted
    from statefulspark.api_server.server import ServerSettings
    from statefulspark.cli.launch.run_logs import now_ms
    from statefulspark.rpc.certificates import CertificateFolder

    server = ServerSettings(host=listen[0], port=listen[1], certificates=CertificateFolder.of(os.environ))
    try:
        with logs.reporter as reporter:
            if logs.file is not None:
                reporter.log_file(str(logs.file.path))
            return run_job(
                start,
                claim=ConnectionFile(home_directory(os.environ, Path.home()), name),
                token=token,
                settings=RunSettings(server=server, stop_timeout_s=stop_timeout_s),
                reporter=reporter,
                clock_ms=now_ms,
                tail=logs.tail,
            )
    except Interrupted as interrupted:
        say(f"{interrupted}: stopped immediately; run the manifest again to resume after the last committed batch", err=True)
        _leave(interrupted.exit_code)


def _end(result: RunResult, output: Output, termination_log: Path | None, logs: RunLogs) -> NoReturn:
    """Print how the job ended and exit."""
    from statefulspark.api_server.models.job import StatusModel
    from statefulspark.api_server.run import termination
    from statefulspark.api_server.run.remedies import what_to_do
    from statefulspark.cli.common.job_tables import status_tables
    from statefulspark.cli.common.output import show

    status = StatusModel.of(result.status)
    if output is Output.JSON or status.error is None:  # tables would bury the error
        show(status.model_dump(mode="json"), output, *status_tables(status))
    if status.error is not None:
        where = f"; Spark's log is {logs.file.path}" if logs.file is not None else ""
        say(f"error: job {status.name} failed ({status.error.reason}){where}\n{status.error.message}", err=True)
    if advice := what_to_do(result.status):
        say(advice, err=True)
    if result.abandoned:
        _leave(result.exit_code)
    if termination_log is not None:
        termination.write(termination_log, termination.of_status(result.status, result.kept))
        raise typer.Exit
    raise typer.Exit(result.exit_code)


def _storage_secrets(job: StatefulSparkJob) -> list[str]:
    """Return what opens the job's storage: from the manifest, the environment and the shared AWS files."""
    storage = job.spec.checkpointing.storage
    given = [each.get_secret_value() for each in (storage.secret_access_key, storage.session_token) if each is not None]
    return given + environment_secrets(os.environ) + shared_secrets(os.environ, Path.home())


@contextmanager
def _settling(termination_log: Path | None) -> Iterator[None]:
    """Turn an error that a restart would not change into a termination message and exit code 0."""
    from statefulspark.api_server.run import termination

    try:
        yield
    except StatefulSparkError as error:
        if termination_log is None or not termination.settled(error):
            raise
        say(f"error: {redact(str(error))}", err=True)
        termination.write(termination_log, termination.of_error(error))
        raise typer.Exit from error


def _leave(code: int) -> NoReturn:
    """End without running exit hooks: Spark's wait for the very tasks that are being abandoned."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
