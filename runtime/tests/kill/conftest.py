"""Drivers start more than fifty times here, so the classes that Spark loads are prepared once."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from runtime.tests.java_options import QUICK, class_archive
from runtime.tests.java_options import java_options as with_archive

from .harness import Ledger, ending, wait_until


@pytest.fixture(scope="session")
def java_options(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Options of every JVM. One of pytest's processes makes the archive if there is none; the others do not wait for it."""
    archive = class_archive()
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            if not archive.exists():
                _make_archive(tmp_path_factory.mktemp("archive"), archive)
    return with_archive()


def _make_archive(folder: Path, archive: Path) -> None:
    """An undisturbed run of the job leaves it when its JVM ends; it gets its name once it is complete. Some Javas cannot make one."""
    unfinished = archive.with_suffix(".unfinished")
    ledger = Ledger(folder=folder, seed=1, files=3, java_options=f"{QUICK} -XX:ArchiveClassesAtExit={unfinished}")
    with ending(ledger):
        ledger.start("--until-idle")
        ledger.wait(600)  # only bounds a hang: without the archive, no kill test of this process would run
        wait_until(lambda: not ledger.processes(), 240, "the end of the JVM")
        ledger.check()
    if unfinished.exists():
        unfinished.rename(archive)
