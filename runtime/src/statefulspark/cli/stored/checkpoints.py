"""``statefulspark checkpoints``: list the checkpoints and savepoints in a directory."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show
from statefulspark.cli.common.storage_options import EndpointOption, PathStyleOption, RegionOption, age_text, bytes_text, storage_opener

if TYPE_CHECKING:
    from statefulspark.checkpoint.catalog import CheckpointSummary


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="checkpoints")(checkpoints)


def checkpoints(
    directory: Annotated[
        str, typer.Argument(help="URL or path of a checkpoint directory, a job's directory, a checkpoint or a savepoint.")
    ],
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
) -> None:
    """List checkpoints and savepoints with number, kind, age and size, and check that all files exist."""
    from statefulspark.checkpoint.catalog import list_checkpoints

    found = list_checkpoints(directory, storage_opener(endpoint, region, path_style))
    now_ms = int(time.time() * 1000)
    document = {"checkpoints": [_as_json(summary, now_ms) for summary in found]}
    root = _shared_root([summary.url for summary in found])
    names = [_below(root, summary.url) for summary in found]
    problems = [(name, summary.problem) for name, summary in zip(names, found, strict=True) if summary.problem is not None]
    # Beside long paths nothing else has room: they follow the table, whole, so that they can be copied.
    long = any(len(name) > _PATH_WIDTH for name in names)
    first: Sequence[object] = range(1, len(names) + 1) if long else names
    rows = [(place, *_as_row(summary, now_ms)) for place, summary in zip(first, found, strict=True)]
    tables = [TableView(root, ("no" if long else "path", *_COLUMNS), rows, whole=("no", "path", "kind", "status", "batch", "slots"))]
    if problems:
        tables.append(TableView("damaged", ("path", "problem"), problems))
    show(document, output, *tables)
    if output is Output.TABLE and long:
        for number, name in enumerate(names, start=1):
            say(f"{number}: {name}")


_COLUMNS: Final = ("kind", "status", "batch", "slots", "age", "took", "size", "new")
_PATH_WIDTH: Final = 10


def _shared_root(urls: list[str]) -> str:
    """The deepest folder that holds all; paths are shown below it, because whole URLs leave no room for anything else."""
    folders = [url.split("/")[:-1] for url in urls]
    shared = []
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/".join(shared)


def _below(root: str, url: str) -> str:
    return url.removeprefix(root).lstrip("/")


def _as_json(summary: CheckpointSummary, now_ms: int) -> dict[str, Any]:
    document = dataclasses.asdict(summary)
    document["age_s"] = None if summary.created_ms is None else (now_ms - summary.created_ms) / 1000
    return document


def _as_row(summary: CheckpointSummary, now_ms: int) -> tuple[object, ...]:
    known = summary.created_ms is not None
    return (
        "canonical" if summary.kind == "savepoint" and summary.format == "canonical" else summary.kind,
        summary.status,
        summary.batch,
        summary.parallelism,
        None if summary.created_ms is None else age_text((now_ms - summary.created_ms) / 1000),
        None if summary.duration_ms is None else f"{summary.duration_ms / 1000:.1f} s",
        bytes_text(summary.size_bytes) if known else None,
        bytes_text(summary.incremental_bytes) if known else None,
    )
