"""One batch far larger than the slots' budgets goes through in bounded memory."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pyarrow.dataset as ds
import pytest

from statefulspark.coordinator.controls import JobState
from statefulspark.job.run.running import RunningJob
from statefulspark.job.start import start_job as start
from statefulspark.job.start.manifest_settings import slot_options

from .work import Work

ROWS = 1_000_000
KEYS = 200_000
BUDGET = 8 << 20


def write_rows(folder: Path) -> pd.Series:
    """Ten files of wide rows in falling event-time order, so that nothing comes out before all has been sorted; sums per account."""
    folder.mkdir()
    chance = np.random.default_rng(12)
    sums = pd.Series(dtype="int64")
    for number in range(10):
        size = ROWS // 10
        at = pd.Timestamp("2026-01-02") - pd.to_timedelta(np.arange(size) + number * size, unit="ms")
        frame = pd.DataFrame(
            {
                "account": chance.integers(0, KEYS, size).astype("str"),
                "at": pd.Series(at).astype("datetime64[us]"),
                "amount": chance.integers(0, 100, size),
                "shop": [f"{n:0120d}" for n in range(size)],
            }
        )
        frame.to_parquet(folder / f"{number}.parquet", index=False)
        sums = sums.add(frame.groupby("account")["amount"].sum(), fill_value=0)
    return sums.astype("int64").sort_index()


class Memory(threading.Thread):
    """Watches how much memory the slots' processes hold."""

    def __init__(self, job: RunningJob) -> None:
        super().__init__(daemon=True)
        self._job = job
        self.first: dict[int, int] = {}
        self.peak: dict[int, int] = {}

    def run(self) -> None:
        while not self._job.status().state.final:
            for slot in self._job.status().slots:
                if slot.pid and slot.state == "RUNNING":
                    try:
                        size = psutil.Process(slot.pid).memory_info().rss
                    except psutil.Error:
                        continue
                    self.first.setdefault(slot.pid, size)
                    self.peak[slot.pid] = max(size, self.peak.get(slot.pid, 0))
            self._job.wait(0.05)


def test_a_batch_much_larger_than_the_budgets_goes_through_in_bounded_memory(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rows (about 190 MB of Arrow data) and 200,000 keys in one batch, with 8 MiB each to sort, to change and to cache."""
    budgets = {"sort_bytes": BUDGET, "dirty_bytes": BUDGET, "cache_bytes": BUDGET, "managed_bytes": 32 << 20}
    monkeypatch.setattr(start, "slot_options", lambda manifest: slot_options(manifest) | budgets)
    work.entrypoint = "wide"
    work.spec = {"stateBackend": {"type": "rocksdb"}}
    sums = write_rows(work.folder / "in")
    job = work.start(until_idle=True)
    memory = Memory(job)
    memory.start()
    job.wait(250)
    memory.join(10)
    status = job.status()
    assert status.state is JobState.FINISHED, status.error
    assert status.input_rows == ROWS
    assert status.output_rows == ROWS
    grown = {pid: (memory.peak[pid] - first) >> 20 for pid, first in memory.first.items()}
    logging.getLogger(__name__).info("the slots grew by %s MiB", grown)
    assert len(grown) == 2
    assert max(grown.values()) < 256
    output = ds.dataset(work.folder / "out", format="parquet", exclude_invalid_files=True).to_table().to_pandas()
    assert output["number"].sum() == (output.groupby("key")["number"].max() * (output.groupby("key")["number"].max() + 1) // 2).sum()
    assert output.groupby("key")["total"].max().to_dict() == sums.to_dict()
