"""The driver dies between two outputs, and slots die around them: every row is in its output once, every state is exact."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from . import oracle
from .harness import Ledger, ending
from .kills import OUTPUT_POINTS, SLOT_POINTS, DriverKiller, drawn, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1800)]

_KILLS = 2


@dataclass(kw_only=True)
class LedgerWithSideOutput(Ledger):
    """The ledger whose quiet periods go to a side output, in folders of files per batch."""

    entrypoint: str = "two_outputs"

    def output(self) -> pd.DataFrame:
        """The rows of both outputs, each of which has its own kind only."""
        kinds = {"main": "row", "quiet": "quiet"}
        parts = {name: pd.read_parquet(self.folder / "out" / name) for name in kinds}
        for name, kind in kinds.items():
            assert set(parts[name]["kind"]) == {kind}
        return oracle.ordered(pd.concat([part.drop(columns="batch") for part in parts.values()], ignore_index=True))


@pytest.mark.exhaustive
def test_killed_drivers_between_two_outputs(tmp_path: Path, java_options: str) -> None:
    """Half of the drivers die when the first output has a batch and the second has not, the others while slots work."""
    between, around = whenever(OUTPUT_POINTS), whenever(SLOT_POINTS[1:4], "executor")
    ledger = LedgerWithSideOutput(
        folder=tmp_path, java_options=java_options, seed=606, files=24, rows=40, interval="1s", failpoints=between + around
    )
    killer = DriverKiller(ledger)
    plan = [(step, number % 2 == 0) for number, step in enumerate(between * _KILLS)]
    plan += [(step, True) for step in drawn(around, _KILLS, ledger.random)]
    with ending(ledger):
        killer.run(plan)
        assert killer.kills + killer.wiped == 2 * _KILLS
        ledger.start("--until-idle")
        ledger.wait(400)
        ledger.check()
