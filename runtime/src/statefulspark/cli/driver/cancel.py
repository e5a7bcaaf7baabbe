"""``statefulspark cancel``: end a running job without a checkpoint."""

from __future__ import annotations

import typer

from statefulspark.cli.common.connect import CaFileOption, JobOption, TimeoutOption, TokenFileOption, connect
from statefulspark.cli.common.job_command import JobCommand
from statefulspark.cli.common.output import Output, OutputOption, say, show
from statefulspark.cli.common.waiting import waiting


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="cancel", cls=JobCommand)(cancel)


def cancel(
    job: JobOption = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """End a running job now, without a checkpoint. To keep the job's latest state, use stop.

    Deletes the job's checkpoints and changelogs if checkpointing.retention.onCancellation of its manifest is DELETE. By default they stay,
    and the job resumes after its last committed batch when its manifest is run again. Savepoints always stay.
    """
    from statefulspark.api_server.run.remedies import after_cancel

    with connect(job, token_file, ca_file) as client, waiting(client, "waiting for the job to be canceled", timeout):
        status = client.cancel(timeout_s=timeout)
    show(status.model_dump(mode="json"), output)
    if output is Output.TABLE:
        say(f"job {status.name} {status.state}")
        say(after_cancel(status))
