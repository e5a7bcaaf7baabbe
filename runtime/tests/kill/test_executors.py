"""Executors are killed, real JVMs of their own with the slots and exchanges in them: every row counts once, every state is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import Ledger, ending
from .kills import MOMENT, SLOT_POINTS, Harasser, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(1200)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("slot_points", "moments", "files"), [(SLOT_POINTS[::3], 1, 30), (SLOT_POINTS, 13, 130)])
def test_killed_executors(tmp_path: Path, java_options: str, slot_points: tuple[str, ...], moments: int, files: int) -> None:
    """SIGKILL of an executor, when one of its slots is at a step of the protocol, and at random moments.

    test_slots.py kills the slots' own processes at each step, and e2e/test_executor_killed.py a pod.
    """
    points = whenever(slot_points, "executor")
    conf = {
        "spark.master": "local-cluster[2,3,1024]",
        "spark.deploy.maxExecutorRetries": "-1",
    }
    ledger = Ledger(folder=tmp_path, java_options=java_options, seed=202, files=files, interval="1s", failpoints=points, conf=conf)
    harasser = Harasser(ledger, ledger.executors)
    plan = [*points, *[MOMENT] * moments]
    ledger.random.shuffle(plan)
    with ending(ledger):
        ledger.start("--until-idle")
        harasser.run(plan)
        ledger.wait(400)
        assert harasser.kills == len(plan)
        ledger.check()
