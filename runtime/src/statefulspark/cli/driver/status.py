"""``statefulspark status``: show the status of a running job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from statefulspark.api_server.instants import at
from statefulspark.cli.common.connect import CaFileOption, JobOption, TokenFileOption, connect, ended_run
from statefulspark.cli.common.job_command import JobCommand
from statefulspark.cli.common.job_tables import in_progress, lag_lines, paths, status_tables
from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show

if TYPE_CHECKING:
    from statefulspark.api_server.run.last_runs import LastRun


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="status", cls=JobCommand)(status)


def status(
    job: JobOption = None, token_file: TokenFileOption = None, ca_file: CaFileOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show the state, slots, watermarks and latest checkpoints of a running job, or how the last run of a job on this machine ended."""
    if (run := ended_run(job)) is not None:
        _show_ended(run, output)
        return
    with connect(job, token_file, ca_file) as client:
        answer = client.status()
    show(answer.model_dump(mode="json"), output, *status_tables(answer))
    if output is Output.TABLE:
        for line in lag_lines(answer, int(time.time() * 1000)):
            say(line)
        for line in paths(
            ("last checkpoint", answer.last_checkpoint.path if answer.last_checkpoint else None),
            ("last savepoint", answer.last_savepoint.path if answer.last_savepoint else None),
            ("restored from", answer.restored_from),
        ):
            say(line)
        for line in in_progress(answer):
            say(line)
        if answer.failing is not None:
            count = "once" if answer.failing.failures == 1 else f"{answer.failing.failures} times in a row"
            since, error = at(answer.failing.since_ms), answer.failing.error
            say(f"failing: {count} since {since}, the last time with {error.reason}: {error.message}")
        if answer.error is not None:
            say(f"failed: {answer.error.reason}: {answer.error.message}")


def _show_ended(run: LastRun, output: Output) -> None:
    """Show a run that is over: its state, its error, and where to look next."""
    facts = [
        ("state", run.state),
        ("started", at(run.started_ms)),
        ("ended", at(run.ended_ms) if run.ended_ms is not None else None),
        ("reason", run.reason),
    ]
    show(run.model_dump(mode="json"), output, TableView(f"job {run.name}, which does not run now", ("fact", "value"), facts))
    if output is Output.JSON:
        return
    for line in paths(("state in", run.directory), ("Spark's log", run.log_file), ("manifest", run.manifest)):
        say(line)
    if run.error is not None:
        say(f"failed: {run.reason}: {run.error}")
    if run.state == "KILLED":
        say("Its process was killed. Run the manifest again: it resumes after the last committed batch, nothing is lost.")
    elif run.advice:
        say(run.advice)
    say(f"`statefulspark history {run.name}` shows what it did.")
