"""``statefulspark memory``: show how a job uses memory and how managed memory is split."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statefulspark.cli.common.output import Output, OutputOption, TableView, say, show
from statefulspark.errors import InvalidInputError
from statefulspark.memory.split import (
    HIGH_PRIO_POOL_RATIO,
    MANAGED_BYTES_MIN,
    WRITE_BUFFER_RATIO,
    MemorySplit,
    arena_block_bytes,
    smallest_managed_bytes,
)
from statefulspark.sizes import parse_size, short_size

if TYPE_CHECKING:
    from statefulspark.config.memory import JobMemory
    from statefulspark.memory.process_memory import ProcessMemory

_BAR_WIDTH = 12


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="memory")(memory)


def memory(
    manifest: Annotated[Path | None, typer.Argument(help="Manifest of a StatefulSparkJob. Shows every part of its pods' memory.")] = None,
    managed: Annotated[
        str | None,
        typer.Option(help="Managed memory of a process, shared evenly by its slots, for example 512Mi. A plain number is in bytes."),
    ] = None,
    slots: Annotated[int, typer.Option(help="Number of slots that share --managed. The output is per slot.", min=1)] = 1,
    write_buffer_ratio: Annotated[
        float, typer.Option(help="Fraction of managed memory for write buffers (between 0 and 1).")
    ] = WRITE_BUFFER_RATIO,
    high_prio_pool_ratio: Annotated[float, typer.Option(help="Fraction of the cache for index and filter blocks.")] = HIGH_PRIO_POOL_RATIO,
    write_buffer_size: Annotated[str, typer.Option(help="Size of one write buffer (writebuffer.size).")] = "64Mi",
    arena_block_size: Annotated[
        str,
        typer.Option(help="Block size of a write buffer (arena-block-size). 0 means an eighth of the write buffer, rounded up to 4 KiB."),
    ] = "0",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how memory is used by a whole job (pass its MANIFEST), or how managed memory alone is split (pass --managed).

    With --managed, the memory is divided by --slots, and each slot's share between block cache and write buffers as Flink does.
    Exits with 2 if a budget is too small; the message gives the smallest one that works.
    """
    if (manifest is None) == (managed is None):
        raise InvalidInputError("give either a manifest or --managed", field="MANIFEST", remedy="See statefulspark memory --help")
    if manifest is not None:
        from statefulspark.config.default_backend import default_state_backend
        from statefulspark.config.manifest import load_manifest

        job = load_manifest(manifest, default_backend=default_state_backend(os.environ))
        plan = job.spec.memory_plan()
        show(_job_document(job.metadata.name, plan), output, *_job_tables(job.metadata.name, plan))
        _tell(plan.warnings)
        return
    arena_bytes = arena_block_bytes(_bytes("--write-buffer-size", write_buffer_size), _bytes("--arena-block-size", arena_block_size))
    managed_bytes = _bytes("--managed", managed or "")
    if managed_bytes < MANAGED_BYTES_MIN * slots > MANAGED_BYTES_MIN:
        raise InvalidInputError(
            f"{short_size(managed_bytes)} for {slots} slots is {short_size(managed_bytes // slots)} per slot, too small for RocksDB",
            field="--managed",
            remedy=f"Give at least {short_size(MANAGED_BYTES_MIN * slots)}, {short_size(MANAGED_BYTES_MIN)} per slot",
        )
    split = MemorySplit.of(managed_bytes // slots, write_buffer_ratio, high_prio_pool_ratio)
    document = {
        "managed": managed_bytes,
        "slots": slots,
        **_split_document(split, arena_bytes),
        "warnings": list(split.warnings(arena_bytes)),
    }
    document["totals"] = {name: document[name] * slots for name in _SPLIT_ROWS if name != "arena_block_size"}
    show(document, output, _split_table(f"{short_size(split.managed_bytes)} of managed memory in each of {slots} slots", document))
    _tell(split.warnings(arena_bytes))


_SPLIT_ROWS = {
    "managed_per_slot": "managed memory of a slot",
    "cache_capacity": "block cache with write buffers",
    "write_buffer_capacity": "limit of all write buffers",
    "high_prio_pool_capacity": "of the cache for index and filters",
    "mutable_limit": "write buffers are flushed above",
    "arena_block_size": "a write buffer grows by",
}
"""Keys of a split's document that are sizes, and what they mean."""


def _bytes(field: str, text: str) -> int:
    try:
        return parse_size(f"{text}b" if text.strip().isdecimal() else text)
    except InvalidInputError as error:
        raise InvalidInputError(error.message, field=field, remedy=error.remedy) from None


def _split_document(split: MemorySplit, arena_bytes: int) -> dict[str, Any]:
    return {
        "managed_per_slot": split.managed_bytes,
        "write_buffer_ratio": split.write_buffer_ratio,
        "high_prio_pool_ratio": split.high_prio_pool_ratio,
        "cache_capacity": split.cache_bytes,
        "write_buffer_capacity": split.write_buffer_bytes,
        "high_prio_pool_capacity": split.high_prio_bytes,
        "mutable_limit": split.mutable_bytes,
        "arena_block_size": arena_bytes,
        "smallest_managed_per_slot": smallest_managed_bytes(arena_bytes, split.write_buffer_ratio),
    }


def _split_table(title: str, document: dict[str, Any]) -> TableView:
    managed = document["managed_per_slot"]
    rows = [(label, short_size(document[name]), document[name], _bar(document[name], managed)) for name, label in _SPLIT_ROWS.items()]
    return TableView(title, ("share of a slot", "size", "bytes", ""), rows, right=("size",))


def _job_document(name: str, plan: JobMemory) -> dict[str, Any]:
    return {
        "name": name,
        "total_bytes": plan.total_bytes,
        "executors": plan.executors,
        "driver": _process_document(plan.driver),
        "executor": _process_document(plan.executor),
        "slot": {
            "managed_per_slot": plan.managed_bytes,
            "cache_bytes": plan.work.cache_bytes,
            "dirty_bytes": plan.work.dirty_bytes,
            "sort_bytes": plan.work.sort_bytes,
            "rocksdb": _split_document(plan.split, plan.arena_bytes) if plan.split is not None else None,
        },
        "spark_conf": plan.spark_conf(),
        "warnings": list(plan.warnings),
    }


def _process_document(process: ProcessMemory) -> dict[str, Any]:
    parts = [{"name": part.name, "each_bytes": part.each_bytes, "count": part.count, "bytes": part.size_bytes} for part in process.parts]
    return {"total_bytes": process.total_bytes, "parts": parts, "sum": process.spelled_out()}


def _job_tables(name: str, plan: JobMemory) -> list[TableView]:
    times = f"{plan.executors} executors" if plan.executors > 1 else "one executor"
    tables = [
        _process_table(f"job {name}: driver pod", plan.driver),
        _process_table(f"executor pod; the job has {times} and takes {short_size(plan.total_bytes)} in all", plan.executor),
    ]
    if plan.split is not None:
        document = _split_document(plan.split, plan.arena_bytes)
        tables.append(_split_table("managed memory of a slot", document))
    tables.append(TableView("Spark's settings", ("setting", "value"), sorted(plan.spark_conf().items())))
    return tables


def _process_table(title: str, process: ProcessMemory) -> TableView:
    total = process.total_bytes
    rows: list[tuple[object, ...]] = []
    for part in process.parts:
        each = f"{part.count} x {short_size(part.each_bytes)}" if part.count > 1 else ""
        rows.append((part.name, each, short_size(part.size_bytes), f"{part.size_bytes / total:.0%}", _bar(part.size_bytes, total)))
    rows.append(("memory", "", short_size(total), "100%", _bar(total, total)))
    return TableView(title, ("part", "each", "size", "share", ""), rows, right=("each", "size", "share"))


def _bar(size_bytes: int, whole_bytes: int) -> str:
    """A bar as long as its share; in eighths of a character."""
    eighths = max(1, round(min(size_bytes / whole_bytes, 1) * _BAR_WIDTH * 8))
    full, rest = divmod(eighths, 8)
    return "\u2588" * full + (chr(0x2590 - rest) if rest else "")


def _tell(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        say(f"warning: {warning}", err=True)
