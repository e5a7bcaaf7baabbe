"""The driver is killed with everything it started, and loses its disk as well: every row counts once, every state is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import Ledger, ending
from .kills import DRIVER_POINTS, GROUP_POINTS, MOMENT, SLOT_POINTS, DriverKiller, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1800)]


# make test has drivers that are killed and lose their disks in test_rescaling, test_storage and kafka/test_kafka_jobs.
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("driver_points", "slot_points", "moments", "again", "files"),
    [
        ((DRIVER_POINTS[3], GROUP_POINTS[0]), (), 1, 0, 28),
        ((*DRIVER_POINTS, *GROUP_POINTS), SLOT_POINTS, 8, 1, 200),
    ],
    ids=["once", "twice"],
)
def test_killed_drivers_with_and_without_their_disks(
    tmp_path: Path,
    java_options: str,
    driver_points: tuple[str, ...],
    slot_points: tuple[str, ...],
    moments: int,
    again: int,
    files: int,
) -> None:
    """Ends of the driver's processes and ends of its whole machine, in turn, mixed, in one life of a job: at its points, and at any moment.

    The exhaustive case has both ends at each point, a slot's too. protocol/test_lives.py has drivers that die at each point, without processes.
    """
    # In local mode the JVM that runs the slots is the driver's: it dies while a slot is at that step.
    points = whenever(driver_points) + whenever(slot_points, "executor")
    ledger = Ledger(
        folder=tmp_path, java_options=java_options, seed=303, files=files, rows=40, interval="1s", inline="64Ki", failpoints=points
    )
    killer = DriverKiller(ledger)
    steps = (*points, *[MOMENT] * moments)
    plan = [(step, (number + turn) % 2 == 0) for turn in range(again + 1) for number, step in enumerate(steps)]
    ledger.random.shuffle(plan)
    with ending(ledger):
        killer.run(plan)
        assert killer.kills + killer.wiped == len(plan)
        assert abs(killer.kills - killer.wiped) <= 1
        ledger.start("--until-idle")
        ledger.wait(400)
        ledger.check()
