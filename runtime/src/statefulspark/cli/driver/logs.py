"""``statefulspark logs``: show the last log records of a job."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from statefulspark.cli.common.connect import CaFileOption, JobOption, TokenFileOption, connect, ended_run
from statefulspark.cli.common.ended import stored_records
from statefulspark.cli.common.job_command import JobCommand
from statefulspark.cli.common.output import Output, OutputOption, printable, say
from statefulspark.errors import UnavailableError
from statefulspark.logs.levels import LogLevel
from statefulspark.logs.tail import RECORDS_MAX

if TYPE_CHECKING:
    from statefulspark.api_server.models.log import LogRecordModel

_POLL_S: Final = 1.0


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="logs", cls=JobCommand)(logs)


def logs(
    job: JobOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new records until the job ends.")] = False,
    level: Annotated[LogLevel, typer.Option(help="Minimum level.", case_sensitive=False)] = LogLevel.DEBUG,
    slot: Annotated[int | None, typer.Option(help="Only records of this slot.", min=0)] = None,
    uid: Annotated[str | None, typer.Option(help="Only records of this keyed step.")] = None,
    records: Annotated[
        int, typer.Option("--records", "-n", help="Maximum number of records, the newest ones.", min=1, max=RECORDS_MAX)
    ] = 100,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the last log records of a job's driver and of its slots, also of a job that has ended on this machine.

    The driver keeps 5000 records, and at most 8 MiB. Slots on other machines, as on Kubernetes, send it records of WARNING and above; the
    executors' own logs have all. With -o json, each record is one line.
    """
    if (run := ended_run(job)) is not None:
        _show(stored_records(run, records=records, level=level, slot=slot, uid=uid), output)
        say(f"job {run.name} does not run now" + (f"; Spark's log is {run.log_file}" if run.log_file else ""), err=True)
        return
    with connect(job, token_file, ca_file) as client:
        answer = client.logs(after=0, records=records, level=level.value, slot=slot, uid=uid)
        _show(answer.records, output)
        if answer.elsewhere is not None:
            say(answer.elsewhere, err=True)
        while follow:
            time.sleep(_POLL_S)
            try:
                answer = client.logs(after=answer.last, records=RECORDS_MAX, level=level.value, slot=slot, uid=uid)
            except UnavailableError:
                say("the driver no longer answers", err=True)
                return
            _show(answer.records, output)


def _show(records: list[LogRecordModel], output: Output) -> None:
    for record in records:
        typer.echo(json.dumps(record.model_dump(mode="json")) if output is Output.JSON else _line(record))


def _line(record: LogRecordModel) -> str:
    facts: dict[str, Any] = dict(record.facts)
    exception = facts.pop("exception", None)
    origin = [f"{name} {facts.pop(key)}" for key, name in (("slot", "slot"), ("key_group", "key group"), ("uid", "uid")) if key in facts]
    parts = [record.timestamp[11:19] + "Z", record.level.upper().ljust(7), *([f"[{', '.join(origin)}]"] if origin else []), record.event]
    parts += [f"{name}={value}" for name, value in facts.items()]
    return printable(" ".join(parts) + (f"\n{exception}" if exception else ""))
