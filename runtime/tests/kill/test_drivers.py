"""The driver is killed with everything it started, and loses its disk as well: every row counts once, every state is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import Ledger, ending
from .kills import DRIVER_POINTS, SLOT_POINTS, DriverKiller, drawn, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1800)]

_KILLS = 20


def test_killed_drivers_with_and_without_their_disks(tmp_path: Path, java_options: str) -> None:
    """20 ends of the driver's processes and 20 ends of its whole machine, mixed, in one life of a job."""
    # In local mode the JVM that runs the slots is the driver's: it dies while a slot is at that step.
    points = whenever(DRIVER_POINTS) + whenever(SLOT_POINTS, "executor")
    ledger = Ledger(folder=tmp_path, java_options=java_options, seed=303, files=180, rows=40, interval="1s", failpoints=points)
    killer = DriverKiller(ledger)
    plan = [(step, True) for step in drawn(points, _KILLS, ledger.random)]
    plan += [(step, False) for step in drawn(points[::-1], _KILLS, ledger.random)]
    ledger.random.shuffle(plan)
    with ending(ledger):
        killer.run(plan)
        assert (killer.kills, killer.wiped) == (_KILLS, _KILLS)
        ledger.start("--until-idle")
        ledger.wait(240)
        ledger.check()
