"""Drivers start more than fifty times here, so the classes that Spark loads are prepared once."""

from __future__ import annotations

import pytest

from .harness import JAVA_OPTIONS, Ledger, ending, wait_until


@pytest.fixture(scope="session")
def java_options(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Options of every JVM: a class data archive, which an undisturbed run of the job leaves when its JVM ends, and little else."""
    folder = tmp_path_factory.mktemp("archive")
    archive = folder / "spark.jsa"
    ledger = Ledger(folder=folder, seed=1, files=3, java_options=f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive}")
    with ending(ledger):
        ledger.start("--until-idle")
        ledger.wait(180)
        wait_until(lambda: not ledger.processes(), 120, "the end of the JVM")
        ledger.check()
    # A JVM that cannot use the archive goes on without it.
    return f"{JAVA_OPTIONS} -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable"
