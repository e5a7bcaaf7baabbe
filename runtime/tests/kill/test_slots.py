"""Slots are killed while they begin, process, acknowledge, snapshot and restore: every row counts once, every state is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import Ledger, ending
from .kills import SLOT_POINTS, Harasser, drawn, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(600)]


def test_killed_python_workers(tmp_path: Path, java_options: str) -> None:
    """SIGKILL of a slot's Python worker, at every step of the protocol and at random moments."""
    points = whenever(SLOT_POINTS)
    ledger = Ledger(folder=tmp_path, java_options=java_options, seed=101, files=130, interval="1s", failpoints=points)
    harasser = Harasser(ledger, ledger.slots)
    with ending(ledger):
        ledger.start("--until-idle")
        harasser.run(drawn(points, 22, ledger.random))
        ledger.wait(180)
        assert harasser.kills >= 20
        ledger.check()
