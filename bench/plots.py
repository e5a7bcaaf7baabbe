"""The pictures of benchmarks, all in one style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.use("Agg")
from matplotlib import pyplot as plt

_SIZE_INCHES = (7.0, 3.0)
_DPI = 110


def bars(path: Path, values: Mapping[str, Sequence[float]], *, label: str) -> None:
    """A bar per name at the median, a dot per repetition."""
    figure, axes = plt.subplots(figsize=_SIZE_INCHES, layout="constrained")
    for place, repetitions in enumerate(values.values()):
        median = sorted(repetitions)[len(repetitions) // 2]
        axes.barh(place, median, color=f"C{place}", alpha=0.6)
        axes.plot(repetitions, [place] * len(repetitions), "k.", markersize=4)
        axes.text(median, place - 0.28, f" {median:,.0f}", va="center", fontsize=8)
    axes.set_xlim(0, 1.15 * max(max(repetitions) for repetitions in values.values()))
    axes.set_yticks(range(len(values)), list(values), fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    _save(figure, path)


def lines(path: Path, series: Mapping[str, Sequence[tuple[float, float]]], *, across: str, up: str, bound: tuple[str, float]) -> None:
    """Lines of (x, y) points, and a dashed one for the bound that must be kept."""
    figure, axes = plt.subplots(figsize=_SIZE_INCHES, layout="constrained")
    for name, points in series.items():
        axes.plot([x for x, _ in points], [y for _, y in points], ".-", markersize=3, linewidth=1, label=name)
    axes.axhline(bound[1], color="black", linestyle="--", linewidth=0.8, label=bound[0])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)
    plt.close(figure)
