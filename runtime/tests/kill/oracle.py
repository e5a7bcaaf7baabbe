"""What the ledger job must give out and keep, computed with pandas alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

QUIET_MS = 5_000
DELAY_MS = 1_000


def write_input(folder: Path, *, files: int, rows: int, accounts: int, seed: int) -> pd.DataFrame:
    """Write ``files`` parquet files of ``rows`` rows in event-time order; returns all rows."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    start = pd.Timestamp("2026-01-01")
    parts = []
    clock = 0
    for number in range(files):
        steps = random.integers(1, 40, rows)
        at = clock + np.cumsum(steps)
        clock = int(at[-1])
        part = pd.DataFrame(
            {
                "account": [f"account-{n:04d}" for n in random.integers(0, accounts, rows)],
                "at": (start + pd.to_timedelta(at, unit="ms")).astype("datetime64[us]"),
                "amount": random.integers(-50, 100, rows),
                "shop": [f"shop-{n}" for n in random.integers(0, 20, rows)],
            }
        )
        path = folder / f"part-{number:05d}.parquet"
        part.to_parquet(path, index=False)
        set_order(path, number)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def set_order(path: Path, number: int) -> None:
    """Let Spark take a file as the ``number``-th: it goes by their times."""
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def final_watermark_ms(rows: pd.DataFrame) -> int:
    """The watermark of one input after all of its rows."""
    return int(rows["at"].astype("datetime64[ms]").astype("int64").max()) - DELAY_MS


def expected_output(rows: pd.DataFrame, final_ms: int | None = None) -> pd.DataFrame:
    """Every output row: running numbers per account, and a quiet row for each gap of at least QUIET_MS that time has passed.

    Args:
        rows: The input, in order.
        final_ms: The watermark after all rows, if they are not those of one input.
    """
    data = rows.copy()
    data["at"] = data["at"].astype("datetime64[ms]").astype("int64")
    data["order"] = np.arange(len(data))
    data = data.sort_values(["account", "at", "order"], kind="stable")
    grouped = data.groupby("account", sort=False)
    data["number"] = grouped.cumcount() + 1
    data["balance"] = grouped["amount"].cumsum()
    first = ~data.duplicated(["account", "shop"])
    data["shops"] = first.astype("int64").groupby(data["account"]).cumsum()
    booked = data.assign(kind="row")[["account", "kind", "number", "balance", "shops", "at"]]
    following = grouped["at"].shift(-1)
    final_watermark = final_watermark_ms(rows) if final_ms is None else final_ms
    due = data["at"] + QUIET_MS
    quiet = data[(following.notna() & (following >= due)) | (following.isna() & (due <= final_watermark))]
    quiet = quiet.assign(kind="quiet", at=quiet["at"] + QUIET_MS, shops=0)[["account", "kind", "number", "balance", "shops", "at"]]
    return ordered(pd.concat([booked, quiet], ignore_index=True))


def ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows in one canonical order, with plain types."""
    result = rows.sort_values(["account", "number", "kind", "at"], kind="stable").reset_index(drop=True)
    return result.astype({"number": "int64", "balance": "int64", "shops": "int64", "at": "int64"})


def expected_state(rows: pd.DataFrame, final_ms: int | None = None) -> dict[str, dict[Any, Any]]:
    """Every state at the end, by its name: what each key holds; of a map, what each (key, user key) holds; of timers, when they are due."""
    data = rows.copy()
    data["at"] = data["at"].astype("datetime64[ms]").astype("int64")
    data["order"] = np.arange(len(data))
    data = data.sort_values(["account", "at", "order"], kind="stable")
    grouped = data.groupby("account")
    due = grouped["at"].max() + QUIET_MS
    open_timers = due[due > (final_watermark_ms(rows) if final_ms is None else final_ms)].to_dict()
    return {
        "balance": grouped["amount"].sum().to_dict(),
        "number": grouped.size().to_dict(),
        "shops": data.groupby(["account", "shop"]).size().to_dict(),
        "recent": {account: amounts.tolist()[-3:] for account, amounts in grouped["amount"]},
        "timer": open_timers,
        "event-timers": open_timers,
    }


def seconds(rows: pd.DataFrame) -> pd.DataFrame:
    """The ledger's output by second and kind: how many rows, and their sums."""
    output = expected_output(rows)
    output["start"] = output["at"] // 1000 * 1000
    summed = output.groupby(["start", "kind"]).agg(
        number=("number", "size"), numbers=("number", "sum"), balances=("balance", "sum"), shops=("shops", "sum")
    )
    return summed.reset_index()
