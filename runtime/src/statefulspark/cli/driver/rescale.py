"""``statefulspark rescale``: change the number of slots of a running job."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from statefulspark.cli.common.connect import CaFileOption, JobOption, TimeoutOption, TokenFileOption, connect
from statefulspark.cli.common.job_command import JobCommand
from statefulspark.cli.common.job_tables import status_tables
from statefulspark.cli.common.output import Output, OutputOption, say, show
from statefulspark.cli.common.rescale_tables import plan_line, plan_tables, rescale_tables
from statefulspark.cli.common.waiting import waiting


class _NumberCommand(JobCommand):
    """Takes ``-2`` for a number that is out of bounds, not for an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put numbers behind ``--``."""
        numbers = [each for each in args if re.fullmatch(r"-\d+", each)]
        if numbers and "--" not in args:
            args = [*(each for each in args if each not in numbers), "--", *numbers]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="rescale", cls=_NumberCommand)(rescale)


def rescale(
    parallelism: Annotated[int, typer.Argument(help="New number of slots (1 to the job's max parallelism).", min=1)],
    job: JobOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the key groups and bytes that move, without rescaling.")] = False,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Rescale a running job: take a checkpoint, restart the slots and the query in the same driver, and resume.

    Shows the plan before and how long the job was paused after.
    """
    with connect(job, token_file, ca_file) as client:
        plan = client.rescale_plan(parallelism)
        if dry_run:
            show(plan.model_dump(mode="json"), output, *plan_tables(plan))
            return
        say(plan_line(plan), err=True)
        with waiting(client, f"waiting for the job to run with {parallelism} slots", timeout):
            answer = client.rescale(parallelism, timeout_s=timeout)
    done = answer.last_rescale if plan.from_parallelism != parallelism else None
    show(answer.model_dump(mode="json"), output, *rescale_tables(done), *status_tables(answer))
