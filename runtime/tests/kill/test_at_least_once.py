"""Mode ``at-least-once`` with Spark's file sink, which skips batches that it has: state stays exact, and no row of the output is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.checkpoint.formats.paths import CHANGELOG_PREFIX

from .harness import Ledger, ending, wait_until
from .kills import DRIVER_POINTS, MOMENT, DriverKiller, Harasser, drawn, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1800)]

SLOT_POINTS = ("slot.begun", "slot.processed", "slot.acknowledged", "slot.snapshot.linked", "slot.snapshot.uploaded", "slot.restored")
"""Steps of a slot in a batch that has no changelogs."""
JUMPED = "driver.jumped"
"""A running driver has written the way back, and has not gone it."""


@pytest.mark.parametrize(
    ("kills", "points", "moments", "files"),
    [
        # Minutes, so CI has the mode's integration tests and the protocol's random lives instead.
        pytest.param(4, ("driver.acknowledged", JUMPED), 0, 50, marks=pytest.mark.exhaustive),
        pytest.param(20, (*DRIVER_POINTS, JUMPED), 6, 220, marks=pytest.mark.exhaustive),
    ],
    ids=["few", "many"],
)
def test_killed_slots_and_drivers(tmp_path: Path, java_options: str, kills: int, points: tuple[str, ...], moments: int, files: int) -> None:
    """SIGKILL of slots at every step and at random moments, then of drivers, with and without their disk; the last one runs exactly-once."""
    of_slots, of_drivers = whenever(SLOT_POINTS), whenever(points)
    ledger = Ledger(
        folder=tmp_path,
        java_options=java_options,
        seed=1101 + kills,
        files=files,
        rows=40,
        interval="8s",
        mode="at-least-once",
        failpoints=(*of_slots, *of_drivers),
    )
    harasser, killer = Harasser(ledger, ledger.slots), DriverKiller(ledger)
    with ending(ledger):
        ledger.start()
        harasser.run(drawn(of_slots, kills, ledger.random))
        assert changelogs(ledger) <= {0}, "a batch after the first one left changelogs"
        ledger.kill_driver()
        for number, step in enumerate((*of_drivers, *[MOMENT] * moments)):
            if step.startswith(JUMPED):
                _die_on_the_way_back(ledger, step)
                ledger.kill_driver()
            else:
                killer.run([(step, number % 2 == 0)])
        ledger.mode = "exactly-once"
        ledger.write_manifest()
        ledger.start("--until-idle")
        ledger.wait(600)
        assert ledger.check_repeated() > 0, "nothing was processed again, so nothing was tested"


def _die_on_the_way_back(ledger: Ledger, point: str) -> None:
    """Let the driver die after it has written the way back."""
    ledger.start()
    wait_until(lambda: ledger.status() is not None or not ledger.running(), 180, "the driver's first answer")
    ledger.wait_for_batch(ledger.batch() + 2)
    ledger.arm(point)
    harasser = Harasser(ledger, ledger.slots)
    while not ledger.struck(point):  # a slot that dies just after a checkpoint needs no way back
        before = ledger.batch()
        harasser.strike(MOMENT)
        wait_until(lambda: ledger.struck(point) or ledger.batch() > before + 1, 180, point)  # noqa: B023  called within the loop's turn


def changelogs(ledger: Ledger) -> set[int]:
    """Batches that left changelogs."""
    folder = ledger.folder / "storage" / "ledger"
    return {int(path.relative_to(folder).parts[2]) for path in (folder / CHANGELOG_PREFIX).rglob("*") if path.is_file()}
