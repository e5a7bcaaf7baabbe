"""``statefulspark list``: list the jobs that run on this machine, or the jobs in a checkpoint directory."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from statefulspark.cli.common.job_tables import cut
from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show
from statefulspark.cli.common.storage_options import EndpointOption, PathStyleOption, RegionOption, age_text, bytes_text, storage_opener
from statefulspark.errors import StatefulSparkError

if TYPE_CHECKING:
    from statefulspark.api_server.models.job import StatusModel
    from statefulspark.checkpoint.stored_jobs import StoredJob

_REQUEST_S: Final = 3.0
"""How long a job may take to say its state; the list shows a driver that hangs as such."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="list")(list_)


def list_(
    directory: Annotated[
        str | None, typer.Argument(help="URL or path of a checkpoint directory. Defaults to the jobs that run on this machine.")
    ] = None,
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
) -> None:
    """List the jobs that run on this machine, or the jobs in a checkpoint directory with their last checkpoint, its age and their size."""
    now_ms = time.time_ns() // 1_000_000
    if directory is None:
        _show_running(output, now_ms)
        return
    from statefulspark.checkpoint.stored_jobs import list_jobs

    found = list_jobs(directory, storage_opener(endpoint, region, path_style))
    document = {"jobs": [_stored_document(job, now_ms) for job in found]}
    show(document, output, _stored_table(f"jobs in {directory}", found, now_ms))
    _warn(output, [(job.job_id, job.problem) for job in found])


_RUNNING: Final = ("job", "state", "slots", "batch", "for")
_NAME_WIDTH: Final = 32
_UID_WIDTH: Final = 36


def _show_running(output: Output, now_ms: int) -> None:
    from statefulspark.api_server.run.connection_files import home_directory, read_connection, remove_dead_files, running_jobs

    home = home_directory(os.environ, Path.home())
    remove_dead_files(home)
    documents: list[dict[str, Any]] = []
    for name in running_jobs(home):
        try:
            url = read_connection(home, name).url
        except StatefulSparkError as error:
            documents.append({"name": name, "url": None, "problem": str(error), "status": None})
            continue
        status, problem = _status(name)
        documents.append({"name": name, "url": url, "problem": problem, "status": status.model_dump(mode="json") if status else None})
    table = TableView("jobs on this machine", _RUNNING, [_running_row(each, now_ms) for each in documents], right=("for",))
    show({"jobs": documents}, output, *([table] if documents else []))
    if output is Output.TABLE and not documents:
        say(f"no job runs on this machine (by {home / 'jobs'})")
    _warn(output, [(each["name"], each["problem"]) for each in documents])


def _warn(output: Output, problems: list[tuple[str, str | None]]) -> None:
    """Tell the problems that a table has no room for."""
    for name, problem in problems if output is Output.TABLE else ():
        if problem is not None:
            say(f"warning: {name}: {problem}", err=True)


def _status(name: str) -> tuple[StatusModel | None, str | None]:
    from statefulspark.cli.common.connect import connect

    try:
        with connect(name, None, request_s=_REQUEST_S) as client:
            return client.status(), None
    except StatefulSparkError as error:
        return None, str(error)


def _running_row(document: dict[str, Any], now_ms: int) -> tuple[object, ...]:
    name, status = cut(document["name"], _NAME_WIDTH), document["status"]
    if status is None:
        return name, "no answer", None, None, None
    batch = status["batch"] if status["batch"] >= 0 else None
    return name, status["state"], status["parallelism"], batch, age_text((now_ms - status["since_ms"]) / 1000)


def _stored_document(job: StoredJob, now_ms: int) -> dict[str, Any]:
    return dataclasses.asdict(job) | {"age_s": None if job.created_ms is None else (now_ms - job.created_ms) / 1000}


def _stored_table(title: str, jobs: list[StoredJob], now_ms: int) -> TableView:
    """Jobs of Kubernetes have a folder that is named by their UID, so they need a column more."""
    folders = any(job.name != job.job_id for job in jobs)
    columns = ("job", *(("folder",) if folders else ()), "checkpoint", "slots", "age", "size")
    rows = []
    for job in jobs:
        last = job.last_checkpoint.rpartition("/")[2] if job.last_checkpoint is not None else None
        age = None if job.created_ms is None else age_text((now_ms - job.created_ms) / 1000)
        name = cut(job.name, _NAME_WIDTH) if job.name is not None else None
        folder = (cut(job.job_id, _UID_WIDTH),) if folders else ()
        rows.append((name, *folder, last, job.parallelism, age, bytes_text(job.size_bytes)))
    return TableView(title, columns, rows, right=("age", "size"))
