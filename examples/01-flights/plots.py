"""The picture of the demo: what the flights job found out, drawn from its output only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, QUIET, BLUE, ORANGE, BAND = "#1f2933", "#7b8794", "#1f6f8b", "#d9822b", "#cfe3ea"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e4e7eb",
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}
BIN_MINUTES = 10
SAME_DAY_MINUTES = 12 * 60
HOURS = range(5, 24)


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Draw delays that travel with the aircraft, and the aircraft in rotation through the year, to a PNG file."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(13, 8.6), dpi=150, facecolor="white")
        grid = figure.add_gridspec(2, 2, height_ratios=[1, 0.8], hspace=0.42, wspace=0.17, left=0.06, right=0.975, top=0.835, bottom=0.065)
        figure.text(0.06, 0.955, "Lateness travels with the aircraft", fontsize=20, weight="bold")
        figure.text(
            0.06,
            0.922,
            f"{(rows.kind == 'leg').sum():,} departures from New York in 2013, followed aircraft by aircraft in keyed state; "
            f"{(rows.kind == 'idle').sum():,} times an aircraft stayed away for a day",
            fontsize=11,
            color=QUIET,
        )
        draw_carry_over(figure.add_subplot(grid[0, 0]), rows)
        draw_hours(figure.add_subplot(grid[0, 1]), rows)
        draw_rotation(figure.add_subplot(grid[1, :]), rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def draw_carry_over(axes: Axes, rows: pd.DataFrame) -> None:
    """Departure delay against the arrival delay of the aircraft's leg before: the same day, and after a night's rest."""
    again = rows[rows.carried_delay.notna() & rows.previous_arr_delay.between(-40, 179)]
    late = (again.previous_arr_delay // BIN_MINUTES) * BIN_MINUTES + BIN_MINUTES / 2
    axes.plot([0, 180], [0, 180], color=QUIET, linewidth=1, linestyle=(0, (4, 3)))
    axes.text(120, 131, "all of it carried on", ha="right", color=QUIET, fontsize=9)
    same_day = again.scheduled_gap < SAME_DAY_MINUTES
    for chosen, color, name in ((same_day, BLUE, "within 12 hours"), (~same_day, ORANGE, "after 12 to 24 hours")):
        delays = again[chosen].groupby(late[chosen]).dep_delay
        low, middle, high = (delays.quantile(share).astype(float) for share in (0.25, 0.5, 0.75))
        minutes = [float(value) for value in middle.index]
        if color == BLUE:
            axes.fill_between(minutes, low, high, color=BAND, linewidth=0)
            axes.text(minutes[-1] + 3, float(low.iloc[-1]), "middle\nhalf", color=BLUE, va="bottom", fontsize=9)
        axes.plot(minutes, middle, color=color, linewidth=2.4)
        axes.text(minutes[-1], float(middle.iloc[-1]) + 6, name, color=color, ha="right", weight="bold")
    axes.axvline(0, color=QUIET, linewidth=0.8)
    axes.set(xlim=(-40, 192), ylim=(-12, 205), xlabel="arrival delay of the leg before (minutes)", ylabel="departure delay (minutes)")
    title(
        axes,
        "A late arrival becomes a late departure",
        "median of the aircraft's next departure from New York; a night in between wipes it out",
    )


def draw_hours(axes: Axes, rows: pd.DataFrame) -> None:
    """Mean delay by hour of the day, and the part of it that came in with the aircraft."""
    legs = rows[(rows.kind == "leg")]
    hour = legs["at"].dt.tz_convert("America/New_York").dt.hour
    known = legs[legs.carried_delay.notna()]
    delay = known.dep_delay.clip(lower=0).groupby(hour).mean().reindex(HOURS).astype(float)
    carried = known.carried_delay.groupby(hour).mean().reindex(HOURS).astype(float)
    axes.bar(list(HOURS), delay, width=0.78, color="#d5dce4", label="new on this leg")
    axes.bar(list(HOURS), carried, width=0.78, color=ORANGE, label="brought along by the aircraft")
    axes.legend(frameon=False, loc="upper left", reverse=True)
    axes.set(xlabel="scheduled departure (hour, New York time)", ylabel="mean departure delay (minutes)", xlim=(4.4, 23.6))
    axes.set_xticks([6, 9, 12, 15, 18, 21], ["6:00", "9:00", "12:00", "15:00", "18:00", "21:00"])
    title(axes, "The burden grows through the day", "flights whose aircraft left New York in the 24 hours before")


def draw_rotation(axes: Axes, rows: pd.DataFrame) -> None:
    """Aircraft that have left New York in the last 24 hours: in with a leg, out with an idle row."""
    rows = rows.sort_values(["tailnum", "at", "kind", "leg"])
    before = rows.groupby("tailnum").kind.shift().fillna("none")
    step = (rows.kind == "leg").astype(int) * before.ne("leg").astype(int) - (rows.kind == "idle").astype(int)
    active = step.groupby(rows["at"].dt.tz_convert("America/New_York")).sum().cumsum()
    daily = active.resample("6h").mean().loc["2013-01-02":"2013-12-31"]
    axes.fill_between(daily.index, daily, color=BAND, linewidth=0)
    axes.plot(daily.index, daily, color=BLUE, linewidth=1.1)
    for start, end, name, side in (("2013-02-08", "2013-02-11", "blizzard", "left"), ("2013-11-27", "2013-11-30", "Thanksgiving", "right")):
        window = daily.loc[start:end]
        axes.annotate(
            f"{name}: {window.min():.0f}",
            (window.idxmin(), window.min()),
            xytext=(8 if side == "left" else -8, -3),
            ha=side,
            textcoords="offset points",
            color=INK,
            fontsize=9,
            weight="bold",
        )
    months = pd.date_range("2013-02-01", "2013-12-01", freq="MS", tz="America/New_York")
    ticks: list[Any] = list(months)
    axes.set_xticks(ticks, [month.strftime("%b") for month in months])
    axes.set(ylim=(0, None), ylabel="aircraft", xlim=(daily.index[0], daily.index[-1]))
    title(
        axes,
        "Aircraft in the New York rotation",
        "aircraft that departed in the last 24 hours; an event-time timer takes each out of the count. The weekly dips are weekends.",
    )


def title(axes: Axes, head: str, note: str) -> None:
    """Set a bold title with a quiet line under it."""
    axes.text(0, 1.1, head, transform=axes.transAxes, fontsize=12.5, weight="bold", va="bottom")
    axes.text(0, 1.035, note, transform=axes.transAxes, fontsize=9.5, color=QUIET, va="bottom")
