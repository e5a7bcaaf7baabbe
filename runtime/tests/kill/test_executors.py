"""Executors are killed, real JVMs of their own with the slots and exchanges in them: every row counts once, every state is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import Ledger, ending
from .kills import SLOT_POINTS, Harasser, drawn, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900)]


def test_killed_executors(tmp_path: Path, java_options: str) -> None:
    """SIGKILL of an executor, when one of its slots is at a step of the protocol and at random moments."""
    points = whenever(SLOT_POINTS, "executor")
    conf = {
        "spark.master": "local-cluster[2,3,1024]",
        "spark.deploy.maxExecutorRetries": "-1",
    }
    ledger = Ledger(folder=tmp_path, java_options=java_options, seed=202, files=130, interval="1s", failpoints=points, conf=conf)
    harasser = Harasser(ledger, ledger.executors)
    with ending(ledger):
        ledger.start("--until-idle")
        harasser.run(drawn(points, 20, ledger.random))
        ledger.wait(180)
        assert harasser.kills >= 20
        ledger.check()
