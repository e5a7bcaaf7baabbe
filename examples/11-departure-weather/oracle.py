"""The same temperatures by a join of two tables, and a comparison with what the job has written.

Run it from the repository's root after the job has ended: ``python examples/11-departure-weather/oracle.py``.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

Temperatures = dict[int, tuple[str, float | None]]


def _temperatures(frame: pd.DataFrame) -> Temperatures:
    if frame["flight_id"].duplicated().any():
        raise ValueError("a flight occurs twice")
    rows = zip(frame["flight_id"], frame["origin"], frame["temp"], strict=True)
    return {int(flight): (origin, None if pd.isna(temp) else float(temp)) for flight, origin, temp in rows}


def expected(flights: Path, weather: Path) -> Temperatures:
    """Airport and temperature of each flight; None where the hour has no observation."""
    departures = pd.read_parquet(flights)
    hours = departures.assign(at=departures["scheduled"].dt.floor("h"))
    return _temperatures(hours.merge(pd.read_parquet(weather), on=["origin", "at"], how="left"))


def written(folder: Path) -> Temperatures:
    """What the job has written."""
    return _temperatures(pd.read_parquet(folder))


if __name__ == "__main__":
    folder = Path("out/departure-weather")
    found = written(folder / "output")
    if found != expected(folder / "flights", folder / "weather"):
        raise SystemExit("the job has written something else")
    known = [temp for _, temp in found.values() if temp is not None]
    print(f"{len(found):,} departures, all as expected; {len(known):,} with a temperature, {min(known):.1f} to {max(known):.1f} °F")
