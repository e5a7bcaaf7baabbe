"""``statefulspark history``: show what a running job has done over time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from statefulspark.api_server.history_models import SAMPLES_MAX, HistoryModel, HistorySampleModel
from statefulspark.api_server.instants import at
from statefulspark.cli.connect import CaFileOption, JobOption, TokenFileOption, connect, ended_run, is_manifest
from statefulspark.cli.job_command import JobCommand
from statefulspark.cli.job_tables import cut, duration, size
from statefulspark.cli.output import Output, OutputOption, TableView, show
from statefulspark.cli.storage_options import EndpointOption, PathStyleOption, RegionOption, storage_opener
from statefulspark.errors import InvalidInputError

if TYPE_CHECKING:
    from statefulspark.storage.base import ObjectStore

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

    JOB may also be the directory of a job in storage, or a job that has ended on this machine: then the history that the job stored is shown.
    """
    most = samples if samples is not None else _SAMPLES if output is Output.TABLE else SAMPLES_MAX
    if job is not None and _is_directory(job):
        answer = _stored(storage_opener(endpoint, region, path_style)(job), _since_ms(since), most)
    elif (run := ended_run(job)) is not None:
        opener = storage_opener(endpoint or run.endpoint, region or run.region, run.path_style if path_style is None else path_style)
        answer = _stored(opener(run.directory), _since_ms(since), most)
    else:
        with connect(job, token_file, ca_file) as client:
            answer = client.history(since_ms=_since_ms(since), samples=most)
    show(answer.model_dump(mode="json"), output, *_tables(answer))


def _is_directory(job: str) -> bool:
    """Return True if the argument is a URL or path in storage, and neither a job's name, a manifest nor a driver's URL."""
    return "/" in job and not job.startswith(("http://", "https://")) and not is_manifest(job)


def _stored(store: ObjectStore, since_ms: int, samples: int) -> HistoryModel:
    """Read the history that a job stored in its folder.

    Raises:
        InvalidInputError: No job stored any there.
    """
    from statefulspark.job.history.storing import newest_history

    found = newest_history(store)
    if found is None:
        raise InvalidInputError(
            f"{store.url} contains no history of a job", field="JOB", remedy="Pass a job's directory, as `statefulspark list DIR` shows it"
        )
    return HistoryModel.of(found, since_ms=since_ms, samples=samples)


def _since_ms(since: str) -> int:
    from statefulspark.config.durations import parse_duration

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
        tables.append(TableView("checkpoints and savepoints", ("ended", "id", "kind", "outcome"), rows))
    if answer.events:
        events = [(at(one.last_ms), one.kind, one.count, cut(one.message.split("\n")[0], 40)) for one in answer.events[-_LATEST:]]
        tables.append(TableView("failures and changes", ("last", "kind", "count", "message"), events))
    return tables


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
    return (cut(error, 36) if error is not None else f"{size(size_bytes or 0)} in {duration(duration_ms or 0)}",)
