"""The measurements without their repeated deliveries, by pandas, and a comparison with what the job has written.

Run it from the repository's root after the job has ended: ``python examples/07-deduplication/oracle.py``.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

COLUMNS = ["id", "at", "device", "value"]
Rows = list[tuple[object, ...]]


def deliveries(folder: Path) -> pd.DataFrame:
    """All deliveries, in their order."""
    frame = pd.concat([pd.read_json(path, lines=True, dtype={"id": str}, convert_dates=False) for path in sorted(folder.glob("*.json"))])
    return frame.assign(at=pd.to_datetime(frame["at"], utc=True))[COLUMNS]


def expected(folder: Path) -> Rows:
    """Each measurement once."""
    return sorted(deliveries(folder).drop_duplicates("id").itertuples(index=False, name=None))


def written(folder: Path) -> Rows:
    """What the job has written."""
    frame = pd.read_parquet(folder)[COLUMNS]
    return sorted(frame.assign(at=pd.to_datetime(frame["at"], utc=True)).itertuples(index=False, name=None))


if __name__ == "__main__":
    source = Path("examples/07-deduplication/deliveries")
    wanted, found = expected(source), written(Path("out/deduplication"))
    if found != wanted:
        raise SystemExit("the job has written something else")
    print(f"{len(deliveries(source))} deliveries, {len(found)} measurements, each written once")
