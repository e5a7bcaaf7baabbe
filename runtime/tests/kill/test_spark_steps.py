"""Spark's own stateful steps before and after a keyed step, under kills: every window of the output is exact, and so is every state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from statefulspark.api_server.client import JobClient

from . import oracle
from .harness import Ledger, committed_files, ending
from .kills import MOMENT, DriverKiller, Harasser, whenever

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1200)]

_SECOND_MS = 1000
_DELAY_MS = 10_000
_FILE_MS = 2_000
"""More event time than a file spans."""
_CONF = {
    "spark.sql.shuffle.partitions": "2",
    # Snapshots are made and old versions deleted all the time.
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.minBatchesToRetain": "2",
}
_ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


@dataclass(kw_only=True)
class StepsLedger(Ledger):
    """The ledger job between steps of Spark's own; each file has the rows of the file before once more."""

    entrypoint: str = "between_spark_steps"

    def __post_init__(self) -> None:
        """Write the input and its duplicates."""
        super().__post_init__()
        paths = sorted((self.folder / "in").iterdir())
        parts = [pd.read_parquet(path) for path in paths]
        for number, path in enumerate(paths[1:], start=1):
            pd.concat([parts[number - 1], parts[number]], ignore_index=True).to_parquet(path, index=False)
            oracle.set_order(path, number)

    def check_output(self) -> None:
        """Each window that the watermark has passed was given out once, with what pandas sums up."""
        rows = oracle.expected_output(self.input)
        rows["start"] = rows["at"] // _SECOND_MS * _SECOND_MS
        summed = rows.groupby(["start", "kind"]).agg(
            number=("number", "size"), numbers=("number", "sum"), balances=("balance", "sum"), shops=("shops", "sum")
        )
        closed = summed[summed.index.get_level_values("start") + _SECOND_MS <= rows["at"].max() - _DELAY_MS].reset_index()
        found = pd.concat([pd.read_parquet(path) for path in committed_files(self.folder / "out")], ignore_index=True)
        found = found.sort_values(["start", "kind"], kind="stable").reset_index(drop=True)
        # What the last batch of rows closed is given out by the batch after it, which a query that was started anew does not run.
        certain = closed["start"] + _SECOND_MS <= rows["at"].max() - _DELAY_MS - _FILE_MS
        assert len(closed[certain]) <= len(found) <= len(closed)
        pd.testing.assert_frame_equal(found[closed.columns], closed[: len(found)], check_dtype=False)


@pytest.mark.exhaustive
def test_drivers_that_lose_their_disks(tmp_path: Path, java_options: str) -> None:
    """The driver's machine is lost: before the last batch's state is stored, when it is and no record names it, and while a batch runs."""
    points = whenever(("driver.begin", "driver.state.stored"))
    ledger = StepsLedger(
        folder=tmp_path, java_options=java_options, seed=707, files=36, rows=40, interval="1s", failpoints=points, conf=_CONF
    )
    killer = DriverKiller(ledger)
    plan = [(step, True) for step in (*points, MOMENT)]
    ledger.random.shuffle(plan)
    with ending(ledger):
        killer.run(plan)
        ledger.start("--until-idle")
        ledger.wait(400)
        ledger.check()


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_executors_killed_and_slots_rescaled(tmp_path: Path, java_options: str) -> None:
    """2 to 3 slots in place, while Spark's partitions stay two; then executors die with their state stores; then a new driver."""
    conf = _CONF | _ROCKSDB | {"spark.master": "local-cluster[2,4,1024]", "spark.deploy.maxExecutorRetries": "-1"}
    ledger = StepsLedger(folder=tmp_path, java_options=java_options, seed=808, files=16, rows=40, interval="1s", conf=conf)
    with ending(ledger):
        ledger.start()
        ledger.wait_for_batch(2)
        connection = ledger.connection()
        assert connection is not None
        with JobClient(connection["url"], connection["token"]) as client:
            assert client.rescale(3, timeout_s=120).parallelism == 3
        Harasser(ledger, ledger.executors).run([MOMENT])
        ledger.kill_driver()
        ledger.wipe_disk()
        ledger.start("--until-idle")
        ledger.wait(400)
        ledger.check()
