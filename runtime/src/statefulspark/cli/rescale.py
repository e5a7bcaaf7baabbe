"""``statefulspark rescale``: change the number of slots of a running job."""

from __future__ import annotations

from typing import Annotated

import typer

from statefulspark.cli.connect import CaFileOption, JobOption, TimeoutOption, TokenFileOption, connect
from statefulspark.cli.job_tables import status_tables
from statefulspark.cli.output import Output, OutputOption, show
from statefulspark.cli.waiting import waiting


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="rescale")(rescale)


def rescale(
    parallelism: Annotated[int, typer.Argument(help="New number of slots (1 to the job's max parallelism).", min=1)],
    job: JobOption,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Rescale a running job: take a checkpoint, restart the slots and the query in the same driver, and resume."""
    with connect(job, token_file, ca_file) as client, waiting(client, f"waiting for the job to run with {parallelism} slots", timeout):
        answer = client.rescale(parallelism, timeout_s=timeout)
    show(answer.model_dump(mode="json"), output, *status_tables(answer))
