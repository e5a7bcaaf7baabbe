"""The converting process ends with its driver, however that ends, and has published nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from runtime.tests.state_tables.snapshots import counts_of_users

from statefulspark.checkpoint.catalog import list_checkpoints, open_checkpoint
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.checkpoint.write.publish import publish
from statefulspark.coordinator.snapshots.conversion import convert
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings

FOLDER = "savepoint-job-0123456789ab"

_DRIVER = """
import sys
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.coordinator.snapshots.conversion import convert
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings
origin, target, folder = sys.argv[1:]
print("begins", flush=True)
convert(open_checkpoint(origin, open_store), target, folder, StorageSettings(), lambda: None)
"""


def _wait(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("part", ["none", "some", "frozen"])
def test_the_driver_is_killed(tmp_path: Path, part: str) -> None:
    """Before the first file is stored and after it, and while the process is suspended: it ends once it goes on."""
    url, _ = counts_of_users(tmp_path, 4000)
    target, scratch = tmp_path / "target", tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", _DRIVER, url, target.as_uri(), FOLDER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": str(scratch)}) as driver:
        children: list[psutil.Process] = []

        def started() -> bool:
            children[:] = psutil.Process(driver.pid).children()
            return bool(children)

        _wait(started)
        if part == "some":
            _wait(lambda: bool(_files(target)))
        if part == "frozen":
            children[0].suspend()
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    if part == "frozen":
        children[0].resume()
    _wait(lambda: not children[0].is_running() or children[0].status() == psutil.STATUS_ZOMBIE)
    left = _files(target)
    assert "_metadata" not in left
    assert not left or [each.status for each in list_checkpoints(target.as_uri(), open_store)] == ["unfinished"]
    origin = open_checkpoint(url, open_store)
    converted = convert(origin, target.as_uri(), "savepoint-job-ba9876543210", StorageSettings(), lambda: None)
    assert verify(publish(open_store(target.as_uri()), converted.metadata, "savepoint-job-ba9876543210")).sound
    assert _files(target / FOLDER) == left, "nobody writes there any more"


def test_credentials_are_not_on_the_command_line(tmp_path: Path) -> None:
    """Other users of the machine see it. The environment is the driver's own."""
    url, _ = counts_of_users(tmp_path, 3)
    settings = StorageSettings(access_key_id="an-access-key", secret_access_key="the-secret-of-the-test")
    seen: list[str] = []

    def look() -> None:
        for child in psutil.Process().children():
            with suppress(psutil.Error):  # it has just ended
                seen.extend(child.cmdline())
                seen.extend(child.environ().values())

    converted = convert(open_checkpoint(url, open_store), (tmp_path / "target").as_uri(), FOLDER, settings, look)
    assert converted.metadata.is_canonical
    assert any("conversion_process" in each for each in seen)
    assert not any("the-secret-of-the-test" in each or "an-access-key" in each for each in seen)
