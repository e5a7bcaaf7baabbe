"""The same hours by pandas, and which reports come too late for theirs, and a comparison with what the job has written.

Run it from the repository's root after the job has ended: ``python examples/10-departures/oracle.py``.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

HOUR = pd.Timedelta(hours=1)
Hours = dict[tuple[str, int], tuple[int, float]]


def expected(folder: Path) -> tuple[Hours, list[int]]:
    """Departures and mean delay by airport and hour, and the flights that are too late.

    The watermark is an hour behind the latest scheduled time of the batches before, and a batch is a file. An hour is kept for two more.
    """
    batches = [pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))]
    latest = pd.Series([batch["scheduled"].max() for batch in batches]).cummax().shift()
    reports = pd.concat([batch.assign(watermark=time - HOUR) for batch, time in zip(batches, latest, strict=True)])
    reports["hour"] = reports["scheduled"].dt.floor("h")
    late = reports["hour"] + 3 * HOUR <= reports["watermark"]
    hours = reports[~late].groupby(["origin", "hour"])["delay"].agg(["size", "mean"])
    found = {(origin, int(hour.timestamp() * 1000)): (int(size), float(mean)) for (origin, hour), size, mean in hours.itertuples(name=None)}
    return found, sorted(int(each) for each in reports.loc[late, "flight_id"])


def written(folder: Path) -> tuple[Hours, list[int]]:
    """The last result of each hour, and the late flights."""
    hours: Hours = {}
    for batch in sorted((folder / "hours").glob("batch=*"), key=lambda path: int(path.name.split("=")[1])):
        for row in pd.read_parquet(batch).itertuples():
            # An hour that fires again for a late report has more departures than before.
            key, result = (row.origin, row.hour_ms), (row.departures, row.mean_delay)
            hours[key] = max(hours.get(key, result), result)
    return hours, sorted(int(each) for each in pd.read_parquet(folder / "late")["flight_id"])


def equal(wanted: tuple[Hours, list[int]], found: tuple[Hours, list[int]]) -> bool:
    """True if hours, departures and late flights are the same, and mean delays up to their last digits."""
    (hours, late), (found_hours, found_late) = wanted, found
    if late != found_late or hours.keys() != found_hours.keys():
        return False
    pairs = [(result, found_hours[key]) for key, result in hours.items()]
    return all(first[0] == second[0] and abs(first[1] - second[1]) < 1e-9 for first, second in pairs)


if __name__ == "__main__":
    result = written(Path("out/departures"))
    if not equal(expected(Path("out/departures/input")), result):
        raise SystemExit("the job has written something else")
    (origin, hour_ms), (departures, delay) = max(result[0].items(), key=lambda each: each[1][0])
    print(f"{len(result[0]):,} hours and {len(result[1]):,} late reports, all as expected")
    print(
        f"the busiest: {origin} at {pd.Timestamp(hour_ms, unit='ms', tz='UTC'):%Y-%m-%d %H:%M} UTC, {departures} flights, {delay:.0f} min late"
    )
