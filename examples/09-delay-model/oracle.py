"""The same predictions by numpy, flight after flight, and a comparison with what the job has written.

Run it from the repository's root after the job has ended: ``python examples/09-delay-model/oracle.py``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

RATE = 0.05
MINUTES = 60.0
TOLERANCE = 1e-6
"""Minutes. Sums of the same numbers in another order differ in their last digits."""


def expected(folder: Path) -> pd.DataFrame:
    """Prediction and truth of each flight that was flown, by flight_id."""
    flights = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))])
    flown = flights.dropna(subset=["dep_delay", "arr_delay"]).sort_values("scheduled", kind="stable")
    weights: dict[str, np.ndarray] = {}
    predictions: list[float] = []
    for flight, departed, arrived in zip(flown["flight"], flown["dep_delay"], flown["arr_delay"], strict=True):
        inputs = np.array([1.0, departed / MINUTES])
        model = weights.setdefault(flight[:2], np.zeros(2))
        predictions.append(float(model @ inputs) * MINUTES)
        model += RATE * (arrived / MINUTES - model @ inputs) / (inputs @ inputs) * inputs
    truth = flown["arr_delay"].to_numpy(float)
    return pd.DataFrame({"predicted": predictions, "arrived": truth}, index=flown["flight_id"].to_numpy()).sort_index()


def written(folder: Path) -> pd.DataFrame:
    """What the job has written, by flight_id."""
    frame = pd.read_parquet(folder)
    return frame.set_index("flight_id")[["predicted", "arrived"]].sort_index()


def equal(wanted: pd.DataFrame, found: pd.DataFrame) -> bool:
    """True if both have the same flights and, within the tolerance, the same predictions."""
    return list(wanted.index) == list(found.index) and bool(np.allclose(wanted, found, rtol=0, atol=TOLERANCE))


if __name__ == "__main__":
    result = written(Path("out/delay-model/output"))
    if not equal(expected(Path("out/delay-model/input")), result):
        raise SystemExit("the job has written something else")
    error = (result["predicted"] - result["arrived"]).abs().mean()
    naive = (result["arrived"] - result["arrived"].mean()).abs().mean()
    print(f"{len(result):,} predictions, all as expected; off by {error:.1f} minutes on average, {naive:.1f} for the average delay")
