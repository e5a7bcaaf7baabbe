"""Rescaling while slots and drivers are killed, and the stores in memory: every row counts once, every state is exact."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from statefulspark.api_server.client import JobClient

from .harness import Ledger, ending, wait_until
from .kills import MOMENT, SLOT_POINTS, Harasser, drawn, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1200)]

_RESTORED = "slot.restored:*"
_BEGUN = "slot.begun:*"
_SNAPSHOT = "slot.snapshot.linked:*"


def _rescale_under_kills(ledger: Ledger, parallelism: int, armed: str) -> None:
    """Rescale in place; a slot dies at ``armed`` meanwhile."""
    connection = ledger.connection()
    assert connection is not None
    ledger.arm(armed)
    with JobClient(connection["url"], connection["token"]) as client, ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(client.rescale, parallelism, timeout_s=120)
        wait_until(lambda: ledger.struck(armed), 120, armed)
        assert outcome.result().parallelism == parallelism
    ledger.wait_for_batch(ledger.batch() + 2)


def test_rescaling_while_slots_are_killed(tmp_path: Path, java_options: str) -> None:
    """2 to 3 to 1 in place with a slot killed while it restores or takes the snapshot for it, then another driver with 4 slots."""
    ledger = Ledger(
        folder=tmp_path, java_options=java_options, seed=505, files=40, interval="1s", failpoints=(_RESTORED, _BEGUN, _SNAPSHOT)
    )
    harasser = Harasser(ledger, ledger.slots)
    with ending(ledger):
        ledger.start()
        ledger.wait_for_batch(3)
        _rescale_under_kills(ledger, 3, _RESTORED)
        harasser.run([MOMENT])
        _rescale_under_kills(ledger, 1, _SNAPSHOT)
        harasser.run([_RESTORED])
        ledger.kill_driver()
        ledger.wipe_disk()
        ledger.start("--until-idle", "--parallelism", "4")
        harasser.run([_BEGUN])
        ledger.wait(400)
        ledger.check()


# protocol/test_lives.py has lives of memory stores in seconds.
@pytest.mark.exhaustive
def test_stores_in_memory(tmp_path: Path, java_options: str) -> None:
    """The memory state backend: slots killed, the driver's machine lost, and on with 3 slots."""
    points = whenever(SLOT_POINTS)
    ledger = Ledger(folder=tmp_path, java_options=java_options, seed=606, files=60, interval="1s", backend="memory", failpoints=points)
    harasser = Harasser(ledger, ledger.slots)
    with ending(ledger):
        ledger.start()
        harasser.run(drawn(points, 6, ledger.random))
        ledger.kill_driver()
        ledger.wipe_disk()
        ledger.start("--until-idle", "--parallelism", "3")
        harasser.run([MOMENT])
        ledger.wait(400)
        ledger.check()
