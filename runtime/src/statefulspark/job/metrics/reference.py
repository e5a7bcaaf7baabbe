"""Writes the list of all metrics in docs/metrics.md from their definitions.

``python -m statefulspark.job.metrics.reference docs/metrics.md`` updates the page; a test fails if it is out of date.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from statefulspark.job.metrics.definitions import DEFINITIONS, MetricDefinition
from statefulspark.state.store.native_metrics import NATIVE_METRICS

BEGIN = "<!-- metrics: begin -->"
END = "<!-- metrics: end -->"

_FLINK = {metric.metric: metric.name for metric in NATIVE_METRICS.values()}


def reference() -> str:
    """Return the tables as Markdown."""
    parts = []
    for title, group in groupby(DEFINITIONS.values(), key=lambda each: each.group):
        metrics = list(group)
        native = metrics[0].name in _FLINK
        head = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
        if native:
            head = ["| `rocksdb.metrics` | metric | type | labels | meaning |", "|---|---|---|---|---|"]
        parts.append("\n".join([f"### {title}", "", *head, *map(_row, metrics)]))
    return "\n\n".join(parts)


def updated(page: str) -> str:
    """Return the page with regenerated tables between its two markers.

    Raises:
        ValueError: A mark is missing.
    """
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


def _row(metric: MetricDefinition) -> str:
    name = f"`statefulspark_{metric.name}{'_total' if metric.kind == 'counter' else ''}`"
    flink = f"| `{_FLINK[metric.name]}` " if metric.name in _FLINK else ""
    return f"{flink}| {name} | {metric.kind} | {', '.join(metric.labels)} | {metric.help} |"


def main(page: Path) -> None:
    """Update the page."""
    page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
