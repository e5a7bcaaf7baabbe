"""Operator state and windows under kills: each slot's count is that of its rows, and every window was given out once, with every row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from statefulspark.checkpoint.inspect.reader import read_state

from . import oracle
from .harness import Ledger, committed_files, ending
from .kills import MOMENT, SLOT_POINTS, Harasser, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1200)]

_SECOND_MS = 1000
_DELAY_MS = 10_000
_FILE_MS = 2_000
"""More event time than a file spans."""


@dataclass(kw_only=True)
class LedgerWithWindows(Ledger):
    """The ledger whose function keeps operator state, and whose output is summed in windows."""

    entrypoint: str = "with_windows"

    def check(self) -> None:
        """Windows, operator state and keyed state are exactly what pandas computes."""
        columns = ["start", "kind"]
        last = int(self.input["at"].astype("datetime64[ms]").astype("int64").max())
        seconds = oracle.seconds(self.input)
        due = seconds[seconds["start"] + _SECOND_MS <= last - _DELAY_MS].reset_index(drop=True)
        certain = due[due["start"] + _SECOND_MS <= last - _DELAY_MS - _FILE_MS]
        found = pd.concat([pd.read_parquet(path) for path in committed_files(self.folder / "out")], ignore_index=True)
        found = found.sort_values(columns, kind="stable").reset_index(drop=True)
        assert len(certain) <= len(found) <= len(due) + 2
        pd.testing.assert_frame_equal(found[seconds.columns], seconds[: len(found)], check_dtype=False)
        url, expected = f"file://{self.folder}/storage/ledger", oracle.expected_state(self.input)
        assert sum(entry.value for entry in read_state(url, "ledger", "rows")) == len(self.input)
        for name in ("balance", "number", "recent", "timer"):
            assert {entry.key: entry.value for entry in read_state(url, "ledger", name)} == expected[name]


@pytest.mark.exhaustive
def test_slots_and_a_driver_are_killed(tmp_path: Path, java_options: str) -> None:
    """Slots die in a batch, before and after its changelog is durable, and at any moment; then the driver and its disk are lost."""
    points = whenever(SLOT_POINTS[1:3])
    ledger = LedgerWithWindows(folder=tmp_path, java_options=java_options, seed=909, files=36, rows=40, interval="1s", failpoints=points)
    with ending(ledger):
        ledger.start()
        Harasser(ledger, ledger.slots).run([*points, MOMENT])
        ledger.kill_driver()
        ledger.wipe_disk()
        ledger.start("--until-idle")
        ledger.wait(400)
        ledger.check()
