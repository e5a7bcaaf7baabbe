"""``statefulspark gc``: delete what nothing references from a job's directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show
from statefulspark.cli.common.storage_options import EndpointOption, PathStyleOption, RegionOption, age_text, bytes_text, storage_opener
from statefulspark.errors import InvalidInputError

if TYPE_CHECKING:
    from statefulspark.checkpoint.gc.collecting import GcResult
    from statefulspark.checkpoint.gc.plan import Garbage

_EXIT_DAMAGED = 1


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="gc")(gc)


def gc(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="URL or path of a job's directory: <checkpointing.dir>/<job id>.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the objects without deleting them.")] = False,
    older_than: Annotated[
        str, typer.Option("--older-than", help="Minimum age of deleted objects (minimum 1h). Use more than checkpointing.timeout.")
    ] = "1 day",
    output: OutputOption = Output.TABLE,
    endpoint: EndpointOption = None,
    region: RegionOption = None,
    path_style: PathStyleOption = None,
) -> None:
    """Delete the objects of a job that no checkpoint, savepoint or batch record references. The job may run meanwhile.

    Deletes nothing if the directory is not a job's, or if an object in it is damaged, missing or of a later release. Exits with 1 then.
    """
    from statefulspark.checkpoint.gc.collecting import collect_garbage

    result = collect_garbage(
        directory,
        open_store=storage_opener(endpoint, region, path_style),
        older_than_s=_seconds(older_than),
        dry_run=dry_run,
        progress=lambda count: say(f"deleted {count} objects", err=True),
    )
    show(_as_json(result, dry_run), output, *_tables(result, dry_run))
    if result.missing:
        say("error: objects that a restore needs are missing. Run `statefulspark verify` on each checkpoint", err=True)
        raise typer.Exit(_EXIT_DAMAGED)


def _seconds(text: str) -> float:
    from statefulspark.config.values.durations import parse_duration

    try:
        return parse_duration(text) / 1000
    except InvalidInputError as error:
        raise InvalidInputError(error.message, field="--older-than", remedy=error.remedy) from error


def _as_json(result: GcResult, dry_run: bool) -> dict[str, Any]:
    return {
        "url": result.url,
        "dry_run": dry_run,
        "unreferenced": [dataclasses.asdict(each) for each in result.plan.garbage],
        "totals": {verdict.replace(" ", "_"): dataclasses.asdict(total) for verdict, total in result.plan.totals.items()},
        "missing": [{"key": key, "referenced_by": referrer} for key, referrer in result.missing.items()],
    }


def _tables(result: GcResult, dry_run: bool) -> list[TableView]:
    garbage = result.plan.garbage
    size = bytes_text(sum(each.size_bytes for each in garbage))
    title = f"{result.url}: {len(garbage)} objects, {size} {'to delete' if dry_run else 'deleted'}"
    kept = [
        (verdict, total.objects, bytes_text(total.size_bytes))
        for verdict, total in sorted(result.plan.totals.items())
        if verdict != "unreferenced"
    ]
    tables = [
        TableView(title, ("where", "kind", "objects", "size", "oldest"), _rows(garbage), right=("size", "oldest")),
        TableView("kept", ("why", "objects", "size"), kept, right=("size",)),
    ]
    if result.missing:
        tables.append(TableView("missing", ("object", "referenced by"), list(result.missing.items())))
    return tables


def _rows(garbage: Iterable[Garbage]) -> list[tuple[object, ...]]:
    """One row per folder, because a folder may have any number of objects; the document has each."""
    groups: dict[tuple[str, str], list[Garbage]] = {}
    for each in garbage:
        groups.setdefault((f"{each.key.partition('/')[0]}/", each.kind), []).append(each)
    return [
        (where, kind, len(group), bytes_text(sum(each.size_bytes for each in group)), age_text(max(each.age_s for each in group)))
        for (where, kind), group in groups.items()
    ]
