"""``statefulspark history``: show what a job has done over time."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from statefulspark.api_server.instants import at
from statefulspark.api_server.models.history import SAMPLES_MAX, HistoryModel, HistorySampleModel
from statefulspark.cli.common.connect import CaFileOption, JobOption, TokenFileOption, connect
from statefulspark.cli.common.ended import ended_job
from statefulspark.cli.common.job_command import JobCommand
from statefulspark.cli.common.job_tables import duration, size
from statefulspark.cli.common.output import Output, OutputOption, TableView, show
from statefulspark.cli.common.storage_options import EndpointOption, PathStyleOption, RegionOption
from statefulspark.errors import InvalidInputError

_SAMPLES: Final = 20
_LATEST: Final = 20
"""Snapshots and events in the tables; JSON has all that the driver keeps."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="history", cls=JobCommand)(history)


def history(
    job: JobOption = None,
    since: Annotated[str, typer.Option(help="How far to look back, such as 90s, 2h or 7d. Defaults to everything the driver keeps.")] = "",
    samples: Annotated[
        int | None,
        typer.Option(min=1, max=SAMPLES_MAX, help=f"Maximum number of samples. Defaults to {_SAMPLES}, with json to {SAMPLES_MAX}."),
    ] = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
) -> None:
    """Show throughput, state sizes, checkpoints and failures of a job over time. Earlier drivers of the job are included.

    JOB may also be a job that has ended on this machine, or a directory in storage: of a job, or the checkpoint directory of one job. Then the
    history that the job stored is shown.
    """
    most = samples if samples is not None else _SAMPLES if output is Output.TABLE else SAMPLES_MAX
    if (ended := ended_job(job, endpoint, region, path_style)) is not None:
        answer = HistoryModel.of(ended.history(), since_ms=_since_ms(since), samples=most)
    else:
        with connect(job, token_file, ca_file) as client:
            answer = client.history(since_ms=_since_ms(since), samples=most)
    show(answer.model_dump(mode="json"), output, *_tables(answer))


def _since_ms(since: str) -> int:
    from statefulspark.config.values.durations import parse_duration

    if not since:
        return 0
    try:
        return max(0, int(time.time() * 1000) - parse_duration(since))
    except InvalidInputError as error:
        raise InvalidInputError(error.message, field="--since", remedy=error.remedy) from None


def _tables(answer: HistoryModel) -> list[TableView]:
    columns = ("until (UTC)", "rows/s", "lag", "state", "memory", "failed")
    tables = [TableView("samples", columns, [_row(sample) for sample in answer.samples])]
    if answer.snapshots:
        rows = [
            (
                at(one.ended_ms),
                one.id,
                "canonical" if one.format == "canonical" else one.kind,
                *_outcome(one.error, one.duration_ms, one.size_bytes),
            )
            for one in answer.snapshots[-_LATEST:]
        ]
        tables.append(TableView("checkpoints and savepoints", ("ended", "id", "kind", "outcome"), rows, whole=("ended", "id", "kind")))
    if answer.events:
        events = [(at(one.last_ms), one.kind, one.count, _first_and_last(one.message)) for one in answer.events[-_LATEST:]]
        tables.append(TableView("failures and changes", ("last", "kind", "count", "message"), events, whole=("last", "kind", "count")))
    return tables


def _first_and_last(message: str) -> str:
    """Return the line that says what failed and, of a traceback, the line with the error."""
    lines = message.strip().splitlines() or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1].strip()}"


def _row(sample: HistorySampleModel) -> tuple[object, ...]:
    return (
        at(sample.to_ms)[5:].rstrip("Z"),
        f"{sample.rows_in * 1000 / max(1, sample.active_ms):,.0f}",
        duration(sample.watermark_lag_ms) if sample.watermark_lag_ms is not None else None,
        size(sum(sample.states.values())),
        size(sample.memory_bytes),
        sample.failures + sample.failed_checkpoints,
    )


def _outcome(error: str | None, duration_ms: int | None, size_bytes: int | None) -> tuple[str]:
    return (error if error is not None else f"{size(size_bytes or 0)} in {duration(duration_ms or 0)}",)
