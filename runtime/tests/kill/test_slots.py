"""Slots are killed while they begin, process, acknowledge, snapshot and restore: every row counts once, every state is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import Ledger, ending, kill, wait_until
from .kills import MOMENT, SLOT_POINTS, Harasser, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(("moments", "files"), [(3, 60), pytest.param(21, 160, marks=pytest.mark.exhaustive)])
def test_killed_python_workers(tmp_path: Path, java_options: str, moments: int, files: int) -> None:
    """SIGKILL of a slot's Python worker, at every step of the protocol and at random moments."""
    points = whenever(SLOT_POINTS)
    ledger = Ledger(folder=tmp_path, java_options=java_options, seed=101, files=files, interval="1s", failpoints=points)
    harasser = Harasser(ledger, ledger.slots)
    plan = [*points, *[MOMENT] * moments]
    ledger.random.shuffle(plan)
    with ending(ledger):
        ledger.start("--until-idle")
        harasser.run(plan)
        ledger.wait(400)
        assert harasser.kills == len(plan)
        ledger.check()


def test_a_slot_that_dies_again_and_again_while_it_restores(tmp_path: Path, java_options: str) -> None:
    """It uses up the retries of three Spark jobs and is submitted again: the job goes on when it comes through."""
    deaths = tuple(f"slot.restored:*:itself-{number}" for number in range(13))
    ledger = Ledger(folder=tmp_path, java_options=java_options, seed=102, files=14, interval="1s", failpoints=deaths)
    with ending(ledger):
        ledger.start("--until-idle")
        ledger.wait_for_batch(3)
        for death in deaths:
            ledger.arm(death)
        kill(ledger.slots()[0])
        wait_until(lambda: all(map(ledger.struck, deaths)) or not ledger.running(), 240.0, "all deaths")
        assert all(map(ledger.struck, deaths))
        ledger.wait(400)
        ledger.check()
