"""Options that name a running job, shared by the commands that talk to one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from statefulspark.driver.client import JobClient
from statefulspark.driver.connection import home_directory, read_connection
from statefulspark.driver.tokens import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, given_token, read_token_file
from statefulspark.errors import InvalidInputError

JobOption = Annotated[
    str, typer.Option("--job", help="Name of a job that runs on this machine, or the URL of its driver.", show_default=False)
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(help=f"File with the job's token; else {TOKEN_VARIABLE}, {TOKEN_FILE_VARIABLE}, else the job's connection file."),
]
TimeoutOption = Annotated[float, typer.Option(help="Seconds the driver may take.", min=0.1, max=86_400)]


def connect(job: str, token_file: Path | None, *, environ: Mapping[str, str] = os.environ) -> JobClient:
    """Return a client for the job that ``--job`` names.

    Raises:
        InvalidInputError: No such job runs here, or there is no token for the URL.
    """
    file_token = read_token_file(token_file, field="--token-file") if token_file is not None else None
    if job.startswith(("http://", "https://")):
        token = file_token or given_token(environ)
        if token is None:
            raise InvalidInputError(
                f"there is no token for {job}",
                field="token",
                remedy=f"Set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}, or give --token-file",
            )
        return JobClient(job, token)
    # The connection file's token, not the environment's: that one may be for another job.
    connection = read_connection(home_directory(environ, Path.home()), job)
    return JobClient(connection.url, file_token or connection.token)
