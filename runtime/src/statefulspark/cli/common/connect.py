"""Options that name a running job, shared by the commands that talk to one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from statefulspark.api_server.client import JobClient
from statefulspark.api_server.run.connection_files import home_directory, read_connection, running_jobs, token_of
from statefulspark.api_server.tokens import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, given_token, read_token_file
from statefulspark.config.kubernetes.pods import TLS_AUTHORITY_FILE, TLS_FOLDER_VARIABLE
from statefulspark.errors import InvalidInputError

if TYPE_CHECKING:
    from statefulspark.api_server.run.last_runs import LastRun

_MANIFESTS: Final = (".yaml", ".yml")
CA_FILE_VARIABLE = "STATEFULSPARK_CA_FILE"
JobOption = Annotated[
    str | None,
    typer.Option(
        "--job", help="Job on this machine (its name or its manifest), or the URL of a driver. Defaults to the one job that runs here."
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        help=f"File that contains the job's API token. Defaults to {TOKEN_VARIABLE}, {TOKEN_FILE_VARIABLE} or the job's connection file."
    ),
]
CaFileOption = Annotated[
    Path | None,
    typer.Option(
        envvar=CA_FILE_VARIABLE,
        help=f"PEM file with the certificate authority of the driver. Defaults to the one in {TLS_FOLDER_VARIABLE}, then to the system's.",
    ),
]
TimeoutOption = Annotated[float, typer.Option(help="Timeout in seconds for the driver's response.", min=0.1, max=86_400)]


def connect(
    job: str | None,
    token_file: Path | None,
    ca_file: Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    request_s: float = 15.0,
) -> JobClient:
    """Return a client for the job that ``--job`` names.

    Args:
        job: Name, manifest or URL; None for the only job that runs on this machine.
        token_file: File with the token; None for the usual places.
        ca_file: See `JobClient`.
        environ: Environment variables of this process.
        request_s: See `JobClient`.

    Raises:
        InvalidInputError: No such job runs on this machine, more than one does and ``job`` is None, or no token was found for the URL.
    """
    file_token = read_token_file(token_file, field="--token-file") if token_file is not None else None
    home = home_directory(environ, Path.home())
    if job is None:
        job = _only_job(home)
    if job.startswith(("http://", "https://")):
        token = file_token or given_token(environ) or token_of(home, job)
        if token is None:
            raise InvalidInputError(
                f"no API token found for {job}",
                field="token",
                remedy=f"Set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}, or use --token-file",
            )
        return JobClient(job, token, ca_file=ca_file or _own_authority(environ), request_s=request_s)
    # The connection file's token, not the environment's: that one may be for another job.
    connection = read_connection(home, _job_name(job))
    return JobClient(connection.url, file_token or connection.token, ca_file=ca_file or _own_authority(environ), request_s=request_s)


def ended_run(job: str | None, *, environ: Mapping[str, str] = os.environ) -> LastRun | None:
    """Return the last run of the job that ``--job`` names if the job does not run on this machine now, and left a record of it.

    Args:
        job: Name, manifest or URL; None for the job that ended last, if no job runs.
        environ: Environment variables of this process.
    """
    from statefulspark.api_server.run.last_runs import last_run

    running = running_jobs(home_directory(environ, Path.home()))
    if job is None:
        return None if running else last_run(None)
    name = _job_name(job)
    return None if name in running else last_run(name)


def _own_authority(environ: Mapping[str, str]) -> Path | None:
    """In a pod of the job, where ``kubectl exec`` runs commands: the certificates of the job."""
    folder = environ.get(TLS_FOLDER_VARIABLE)
    return Path(folder) / TLS_AUTHORITY_FILE if folder else None


def _only_job(home: Path) -> str:
    names = running_jobs(home)
    if len(names) == 1:
        return names[0]
    found = f"{len(names)} jobs run on this machine ({', '.join(names)})" if names else f"no job runs on this machine (by {home / 'jobs'})"
    raise InvalidInputError(found, field="--job", remedy="Name the job, or give the URL of its driver and --token-file")


def is_manifest(job: str) -> bool:
    """Return True if the argument is the path of a manifest."""
    return job.endswith(_MANIFESTS)


def _job_name(job: str) -> str:
    """Return the name of a job that is given by its name or its manifest."""
    from statefulspark.config.manifest import load_manifest

    return load_manifest(Path(job)).metadata.name if is_manifest(job) else job
