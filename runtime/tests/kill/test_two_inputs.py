"""Slots and drivers of a job with two keyed inputs are killed: every row of both is booked once, in order, and every state is exact."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from . import oracle
from .harness import Ledger, ending
from .kills import MOMENT, SLOT_POINTS, Harasser, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1200)]


@dataclass(kw_only=True)
class LedgerOfTwoInputs(Ledger):
    """The ledger whose rows of shops with an odd number are a second input, which takes what the first brings.

    A batch has one file of each input, which span the same time, so that all rows of an account are booked in the order of their times. The watermark
    is that of the input which ends first.
    """

    entrypoint: str = "two_inputs"

    def __post_init__(self) -> None:
        """Split the files of the ledger."""
        super().__post_init__()
        inputs = []
        for name, odd in (("first", 0), ("second", 1)):
            (self.folder / "in" / name).mkdir()
            parts = []
            for number, path in enumerate(sorted((self.folder / "in").glob("*.parquet"))):
                rows = pd.read_parquet(path)
                parts.append(rows[_number(rows) % 2 == odd])
                assert len(parts[-1]), "a batch has rows of both inputs"
                parts[-1].to_parquet(self.folder / "in" / name / path.name, index=False)
                oracle.set_order(self.folder / "in" / name / path.name, number)
            inputs.append(pd.concat(parts, ignore_index=True))
        self.final_ms = min(map(oracle.final_watermark_ms, inputs))
        taken = _number(self.input) % 2 == 1
        self.input.loc[taken, "amount"] = -self.input.loc[taken, "amount"]


def _number(rows: pd.DataFrame) -> pd.Series[int]:
    return rows["shop"].str.removeprefix("shop-").astype("int64")


@pytest.mark.exhaustive
def test_slots_and_a_driver_are_killed(tmp_path: Path, java_options: str) -> None:
    """Slots die in a batch, before and after its changelog is durable, and at any moment; then the driver and its disk are lost."""
    points = whenever(SLOT_POINTS[1:3])
    ledger = LedgerOfTwoInputs(folder=tmp_path, java_options=java_options, seed=1010, files=30, rows=40, interval="1s", failpoints=points)
    with ending(ledger):
        ledger.start()
        Harasser(ledger, ledger.slots).run([*points, MOMENT])
        ledger.kill_driver()
        ledger.wipe_disk()
        ledger.start("--until-idle")
        ledger.wait(400)
        ledger.check()
