"""What the manifest says of RocksDB reaches the slots' processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from statefulspark.errors import InvalidInputError

from .oracles import by, counted, files
from .test_metrics import MIB, capacities
from .work import Work, wait_until

FACTORY = """
from dataclasses import replace

from cache_factor import FACTOR


def tune(options):
    return replace(options, block_cache_bytes=options.block_cache_bytes * FACTOR)


def broken(options):
    raise RuntimeError("no such disk")
"""


@pytest.fixture
def options_module(work: Work, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the job's Python files with an options factory."""
    folder = work.folder / "code"
    folder.mkdir()
    (folder / "cache_options.py").write_text(FACTORY)
    (folder / "cache_factor.py").write_text("FACTOR = 2\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    work.spec = {"job": work.document()["spec"]["job"] | {"pyFiles": [str(folder)]}}
    return folder


@pytest.mark.usefixtures("options_module")
def test_a_factory_from_the_jobs_files_decides_in_every_slot(work: Work) -> None:
    """Without managed memory: the factory doubles the single option, which had won over the predefined set; RocksDB itself says so."""
    work.spec["stateBackend"] = {
        "type": "rocksdb",
        "rocksdb": {
            "memory": {"managed": False},
            "predefinedOptions": "SPINNING_DISK_OPTIMIZED_HIGH_MEM",
            "options": {"block.cache-size": "3mb"},
            "optionsFactory": "cache_options:tune",
            "metrics": ["block-cache-capacity"],
        },
    }
    inputs = files(seed=31, number=1)
    work.write(inputs[0])
    job = work.start()
    wait_until(lambda: len(capacities(job)) == 2, 240, "slots have reported")
    assert set(capacities(job).values()) == {6 * MIB}
    assert len(work.wait_rows(len(inputs[0]), 120)) == len(counted(by("account", inputs)))


@pytest.mark.usefixtures("options_module")
def test_a_factory_that_raises_is_told_before_anything_starts(work: Work) -> None:
    """The field, what it raised and the remedy; the storage folder is not even made a job's."""
    work.spec["stateBackend"] = {"type": "rocksdb", "rocksdb": {"optionsFactory": "cache_options:broken"}}
    with pytest.raises(InvalidInputError, match=r"optionsFactory: .*broken raised RuntimeError: no such disk\. Correct it"):
        work.start()
    assert list(work.store().list("")) == []
