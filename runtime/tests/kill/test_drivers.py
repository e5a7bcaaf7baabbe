"""The driver is killed with everything it started, and loses its disk as well: every row counts once, every state is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import Ledger, ending
from .kills import DRIVER_POINTS, SLOT_POINTS, DriverKiller, drawn, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("kills", "files"), [(len(DRIVER_POINTS + SLOT_POINTS), 110), pytest.param(20, 180, marks=pytest.mark.exhaustive)])
def test_killed_drivers_with_and_without_their_disks(tmp_path: Path, java_options: str, kills: int, files: int) -> None:
    """Ends of the driver's processes and ends of its whole machine, as many of each, mixed, in one life of a job: at every point, and at any moment."""
    # In local mode the JVM that runs the slots is the driver's: it dies while a slot is at that step.
    points = whenever(DRIVER_POINTS) + whenever(SLOT_POINTS, "executor")
    ledger = Ledger(folder=tmp_path, java_options=java_options, seed=303, files=files, rows=40, interval="1s", failpoints=points)
    killer = DriverKiller(ledger)
    plan = [(step, True) for step in drawn(points, kills, ledger.random)]
    plan += [(step, False) for step in drawn(points[::-1], kills, ledger.random)]
    assert {step for step, _ in plan} >= set(points)
    ledger.random.shuffle(plan)
    with ending(ledger):
        killer.run(plan)
        assert (killer.kills, killer.wiped) == (kills, kills)
        ledger.start("--until-idle")
        ledger.wait(240)
        ledger.check()
