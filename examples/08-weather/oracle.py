"""The same differences by a join of the observations with themselves, and a comparison with what the job has written.

Run it from the repository's root after the job has ended: ``python examples/08-weather/oracle.py``.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

COLUMNS = ["origin", "at", "temp", "difference"]
Rows = list[tuple[object, ...]]


def _rows(frame: pd.DataFrame) -> Rows:
    return sorted(frame.assign(at=pd.to_datetime(frame["at"], utc=True))[COLUMNS].itertuples(index=False, name=None))


def expected(folder: Path) -> Rows:
    """Each observation that has one of 24 hours before."""
    today = pd.read_parquet(folder)
    yesterday = today.assign(at=today["at"] + pd.Timedelta(days=1))
    both = today.merge(yesterday, on=["origin", "at"], suffixes=("", "_yesterday"))
    return _rows(both.assign(difference=both["temp"] - both["temp_yesterday"]))


def written(folder: Path) -> Rows:
    """What the job has written."""
    return _rows(pd.read_parquet(folder))


if __name__ == "__main__":
    wanted, found = expected(Path("out/weather/input")), written(Path("out/weather/output"))
    if found != wanted:
        raise SystemExit("the job has written something else")
    coldest = min(found, key=lambda row: row[3])
    print(f"{len(found):,} differences, all as expected; the sharpest fall: {coldest[3]:.1f} °F at {coldest[0]}, {coldest[1]}")
