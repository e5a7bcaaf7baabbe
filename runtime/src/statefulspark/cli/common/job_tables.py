"""A job's status and checkpoints as tables for people; every table fits a terminal of 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from statefulspark.api_server.instants import at
from statefulspark.api_server.models.job import (
    CheckpointModel,
    MemoryModel,
    MissingTableModel,
    SlotModel,
    SourceModel,
    StatusModel,
    UserMetricModel,
)
from statefulspark.cli.common.output import TableView, printable
from statefulspark.coordinator.controls import JobStatus

_KIB = 1024
_MANY = 10_000_000
"""From here on rows are shown in millions."""
_KAFKA: Final = re.compile(r"Kafka\w*\[(?:Subscribe|SubscribePattern|Assign)\[(.*)\]\]", re.DOTALL)
_FILES: Final = re.compile(r"FileStreamSource\[(.*)\]", re.DOTALL)
_STALE_MS: Final = 60_000


def status_tables(status: StatusModel) -> list[TableView]:
    """Return the tables of ``statefulspark status``: the job, its watermarks, its slots."""
    facts: list[tuple[str, object]] = [
        ("state", f"{status.state} since {at(status.since_ms)}"),
        ("job id", status.job_id),
        ("parallelism", f"{status.parallelism} of at most {status.max_parallelism}"),
        ("attempt", status.attempt),
        ("last batch", status.batch if status.batch >= 0 else None),
        ("input rows", f"{status.input_rows:,}"),
        ("output rows", f"{status.output_rows:,}"),
        ("failed checkpoints", status.failed_checkpoints),
        ("slot restarts", sum(slot.restarts for slot in status.slots)),
    ]
    facts += [(f"watermark {uid}", at(watermark) if watermark is not None else None) for uid, watermark in status.watermarks.items()]
    if status.last_checkpoint is not None:
        facts.append(("last checkpoint", _brief(status.last_checkpoint)))
    if status.last_savepoint is not None:
        facts.append(("last savepoint", _brief(status.last_savepoint)))
    tables = [TableView(f"job {status.name}", ("fact", "value"), _fitted(facts))]
    tables += _reported_tables(status)
    if status.slots:
        columns = ("slot", "key groups", "state", "epoch", "host", "pid")
        rows = [(slot.slot, f"{slot.first}-{slot.last}", slot.state, slot.epoch, slot.host, slot.pid) for slot in status.slots]
        tables.append(TableView("slots", columns, [_short(row) for row in rows]))
    if any(slot.memory is not None for slot in status.slots):
        tables.append(_load_table(status.slots))
    return tables


def _reported_tables(status: StatusModel) -> list[TableView]:
    """Return what sources and functions report, as far as they report anything."""
    tables = []
    if status.sources:
        tables.append(TableView("sources", ("source", "rows", "rows/s in / done"), list(map(_source_row, status.sources))))
    if status.user_metrics:
        rows = [
            (cut(uid, 20), cut(metric.name, 24), metric.kind, _said(metric))
            for uid, named in status.user_metrics.items()
            for metric in named
        ]
        more = f" ({status.user_metrics_left_out:,} more in /metrics)" if status.user_metrics_left_out else ""
        tables.append(TableView(f"metrics of functions{more}", ("uid", "metric", "kind", "value"), rows))
    return tables


def _source_row(source: SourceModel) -> tuple[object, ...]:
    rates = [f"{rate:,.0f}" if rate is not None else "-" for rate in (source.input_rows_per_second, source.processed_rows_per_second)]
    return (cut(source.description, 35), f"{source.input_rows:,}", cut(" / ".join(rates), 18))


def lag_lines(status: StatusModel, now_ms: int) -> list[str]:
    """Return a line per source: ``clicks (Kafka): 1,204 records behind, most in partition 3 (900)``, and the time of these figures if they are old.

    Args:
        status: The job's.
        now_ms: Current time.
    """
    lines = [f"{_name(source)}: {_behind(source)}" for source in status.sources]
    reported_ms = status.lag.at_ms if status.lag is not None else None
    if lines and reported_ms is not None and not status.idle and now_ms - reported_ms > _STALE_MS:
        lines.append(f"The sources reported this for the last batch, which began at {at(reported_ms)}.")
    return lines


def _name(source: SourceModel) -> str:
    for pattern, kind in ((_KAFKA, "Kafka"), (_FILES, "files")):
        if (found := pattern.match(source.description)) is not None:
            return f"{_one_line(found[1])} ({kind})"
    return _one_line(source.description)


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _behind(source: SourceModel) -> str:
    unit = "records" if _KAFKA.match(source.description) else "rows"
    counts = ((source.backlog_rows, unit), (source.backlog_files, "files"))
    known = [f"{count:,} {name}" for count, name in counts if count is not None]
    known += [size(source.backlog_bytes)] if source.backlog_bytes is not None else []
    if not known:
        return "unknown how far behind, because this source does not report it"
    worst = source.partitions[0] if source.partitions else None
    if worst is None or not worst.rows or len(source.partitions) + source.partitions_left_out == 1:
        return f"{', '.join(known)} behind"
    topic = f"{_one_line(worst.topic)}, " if len({one.topic for one in source.partitions}) > 1 else ""
    return f"{', '.join(known)} behind, most in {topic}partition {_one_line(worst.partition)} ({worst.rows:,})"


def _said(metric: UserMetricModel) -> str:
    """Return the value of a metric over all slots."""
    if metric.kind == "distribution" and metric.value and metric.sum is not None:
        return f"{metric.value:g}, mean {metric.sum / metric.value:.4g}"
    if metric.kind != "gauge":
        return "-" if metric.value is None else f"{metric.value:,g}"
    values = sorted({value for value in (metric.min, metric.max) if value is not None})
    return " to ".join(f"{value:,.5g}" for value in values) or "-"


def _load_table(slots: Iterable[SlotModel]) -> TableView:
    """Return what each slot holds: its process by its proportional set size, native memory by what is used of the managed."""
    rows: list[tuple[object, ...]] = []
    for slot in slots:
        memory = slot.memory
        rows.append(
            (
                slot.slot,
                f"{_mebibytes(memory.pss_bytes)} / {_mebibytes(memory.process_budget_bytes)}" if memory else None,
                f"{_mebibytes(memory.used_bytes or 0)} / {_mebibytes(memory.managed_bytes)}" if memory and memory.managed_bytes else None,
                size(slot.store_bytes) if slot.store_bytes is not None else None,
                f"{slot.rows_in:,}" if slot.rows_in < _MANY else f"{slot.rows_in / 1e6:,.0f} M",
                f"{slot.cache_hit_ratio:.1%}" if slot.cache_hit_ratio is not None else None,
            )
        )
    return TableView("memory and load", ("slot", "process MiB", "native MiB", "store", "rows in", "cache hits"), rows)


def _mebibytes(size_bytes: int) -> int:
    return round(size_bytes / (_KIB * _KIB))


def snapshot_table(info: CheckpointModel) -> TableView:
    """Return the table of one checkpoint or savepoint."""
    facts: list[tuple[str, object]] = [
        ("after batch", info.batch),
        ("completed", at(info.completed_ms)),
        ("duration", duration(info.duration_ms)),
        ("rows held up", duration(info.sync_ms)),
        ("size", size(info.size_bytes)),
        ("uploaded", size(info.uploaded_bytes)),
    ]
    if info.format == "canonical":
        facts.append(("format", info.format))
    return TableView(f"{info.kind} {info.id}", ("fact", "value"), _fitted(facts))


def without_table(missing: Iterable[MissingTableModel]) -> list[TableView]:
    """Return the table of the states of a canonical savepoint that have no table; none if all have one."""
    rows = [(cut(each.uid, 20), cut(each.state, 20), cut(each.reason, 26)) for each in missing]
    return [TableView("states without a table, which a restore has nevertheless", ("uid", "state", "reason"), rows)] if rows else []


def memory_table(memory: MemoryModel) -> TableView:
    """Return the table of ``statefulspark tune``."""
    facts: list[tuple[str, object]] = [
        ("managed memory per slot", f"{size(memory.managed_bytes)} of {size(memory.budget_bytes)}"),
        ("write buffer ratio", f"{memory.write_buffer_ratio:g}"),
        ("high-priority pool ratio", f"{memory.high_prio_pool_ratio:g}"),
        ("block cache", size(memory.cache_bytes)),
        ("write buffers", size(memory.write_buffer_bytes)),
        ("high-priority pool", size(memory.high_prio_bytes)),
        ("revision", "the manifest's" if memory.revision == 0 else memory.revision),
        ("slots that have it", ", ".join(map(str, memory.slots)) or None),
    ]
    return TableView("memory", ("fact", "value"), _fitted(facts))


def paths(*named: tuple[str, str | None]) -> list[str]:
    """Return lines ``name: path`` for what has a path. Lines, because a path cut to fit a table cannot be copied."""
    return [f"{name}: {path}" for name, path in named if path]


def in_progress(status: StatusModel | JobStatus) -> list[str]:
    """Return what takes time now: ``restoring slot 3: 1.2 GiB of 4.0 GiB``, ``savepoint 7: 1 of 2 slots done``."""
    texts = [
        f"restoring slot {slot.slot}: {size(slot.restoring.downloaded_bytes)} of {size(slot.restoring.total_bytes)}"
        for slot in status.slots
        if slot.restoring is not None
    ]
    if (pending := status.pending_snapshot) is not None:
        uploaded = f", {size(pending.uploaded_bytes)} of {size(pending.total_bytes)}" if pending.total_bytes else ""
        texts.append(f"{pending.kind} {pending.id}: {pending.slots_done} of {pending.slots} slots done{uploaded}")
    return texts


def duration(milliseconds: int) -> str:
    """Return a duration as text: ``840 ms``, ``12.4 s``, ``3 min 20 s``."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1_000), 60)
    return f"{minutes} min {seconds} s"


def size(count: float) -> str:
    """Return a number of bytes as text in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < _KIB:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KIB
    return f"{count:.1f} TiB"


def _brief(info: CheckpointModel) -> str:
    return f"{info.id} after batch {info.batch}, {size(info.size_bytes)} in {duration(info.duration_ms)}"


def _fitted(facts: Iterable[tuple[str, object]]) -> list[tuple[object, ...]]:
    return [(cut(name, 28), value if value is None else cut(str(value), 45)) for name, value in facts]


def _short(row: Sequence[object]) -> tuple[object, ...]:
    """Cut the texts of a slot's row to what 80 columns hold."""
    widths = (5, 11, 9, 5, 23, 7)
    return tuple(cut(cell, width) if isinstance(cell, str) else cell for cell, width in zip(row, widths, strict=True))


def cut(text: str, width: int) -> str:
    """Return ``text`` cut to ``width`` characters, the last one a tilde if something is missing."""
    return text if len(text) <= width else text[: width - 1] + "~"
