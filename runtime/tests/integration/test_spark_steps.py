"""Spark's own stateful steps around a keyed step: their state survives what keyed state survives."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.job.spark.stream_writer import without_sink
from statefulspark.storage.open import open_store

from .oracles import START_MS, Input, by, counted, files, finals
from .work import Work, local_path, wait_until

SCRIPT = Path(__file__).parent / "spark_steps.py"
_STORE = "spark.sql.streaming.stateStore"
ROCKSDB = {f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
CHANGELOGS = ROCKSDB | {f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true"}
SHORT = {f"{_STORE}.maintenanceInterval": "200ms", f"{_STORE}.minDeltasForSnapshot": "2", "spark.sql.streaming.minBatchesToRetain": "2"}
"""Snapshots are made and old versions deleted all the time."""

Window = tuple[int, int, int, str]


@pytest.fixture
def steps(work: Work) -> Work:
    """The job of these tests, with two state stores per step of Spark's."""
    work.script = SCRIPT
    work.spec = {"sparkConf": {"spark.sql.shuffle.partitions": "2"}}
    return work


@pytest.fixture
def dry_runs(monkeypatch: pytest.MonkeyPatch) -> list[DataStreamWriter]:
    """The queries that were started without their sink."""
    found: list[DataStreamWriter] = []

    def noted(writer: DataStreamWriter) -> DataStreamWriter:
        found.append(writer)
        return without_sink(writer)

    monkeypatch.setattr("statefulspark.job.run.engine.without_sink", noted)
    return found


def tops(inputs: list[list[Input]]) -> dict[str, list[Any]]:
    """Rows and largest running total per shop."""
    out: dict[str, list[Any]] = {}
    for each, (_, _, total) in zip([each for rows in inputs for each in rows], counted(by("account", inputs)), strict=True):
        n, top = out.get(each["shop"], (0, -1))
        out[each["shop"]] = [n + 1, max(top, total)]
    return out


def closed_windows(inputs: list[list[Input]]) -> list[Window]:
    """Start, rows, sum of numbers and shop of every window of 100 ms that the watermark has passed; row i of all lies at 10 ms * (i + 1)."""
    found: dict[tuple[int, str], list[int]] = {}
    at = 0
    for each, (_, number, _) in zip([each for rows in inputs for each in rows], counted(by("account", inputs)), strict=True):
        at += 10
        window = found.setdefault((START_MS + at // 100 * 100, each["shop"]), [0, 0])
        window[0] += 1
        window[1] += number
    watermark = START_MS + at - 50
    return sorted((start, n, numbers, shop) for (start, shop), (n, numbers) in found.items() if start + 100 <= watermark)


def pairs(inputs: list[list[Input]]) -> Counter[tuple[str, int, int]]:
    """The number of each row with the amounts of all earlier rows of its account."""
    earlier: dict[str, list[int]] = {}
    found: Counter[tuple[str, int, int]] = Counter()
    for each in (each for rows in inputs for each in rows):
        amounts = earlier.setdefault(each["account"], [])
        found.update((each["account"], len(amounts) + 1, amount) for amount in amounts)
        amounts.append(each["amount"])
    return found


def windows_of(work: Work) -> list[Window]:
    """What the file sink holds, partitioned by shop."""
    committed: dict[Path, None] = {}
    for entry in sorted((work.folder / work.out / "_spark_metadata").glob("[!.]*")):
        for line in entry.read_text().splitlines()[1:]:
            committed[Path(json.loads(line)["path"].removeprefix("file://"))] = None
    found = []
    for path in committed:
        shop = path.parent.name.removeprefix("shop=")
        found += [(each["start"], each["n"], each["numbers"], shop) for each in pq.ParquetFile(path).read().to_pylist()]
    return sorted(found)


def lose_driver(work: Work, *, batch: int) -> None:
    """The driver and its disk are gone after ``batch`` is committed and before the next one is planned: no checkpoint, no record of it."""
    job = work.jobs[-1]
    wait_until(lambda: job.status().batch >= batch, 240, f"batch {batch}")
    job.cancel()
    shutil.rmtree(work.folder / "tmp")
    (work.folder / "tmp").mkdir()


def packs(work: Work) -> set[str]:
    """Keys of the packs in storage."""
    return {info.key for info in work.store().list(paths.SPARK_STATE_PREFIX)}


# test_spark_state_s3.py does the same with Spark's own provider of files.
@pytest.mark.exhaustive
@pytest.mark.parametrize("provider", [pytest.param({}, id="hdfs"), pytest.param(ROCKSDB, id="rocksdb")])
def test_an_aggregation_after_a_keyed_step_goes_on_where_a_lost_driver_was(steps: Work, provider: dict[str, str]) -> None:
    """Every batch's complete result is that of all rows so far, through a lost disk; a sink that takes the batch again gets the same."""
    steps.entrypoint = "complete"
    steps.spec["sparkConf"] |= provider | SHORT
    inputs = files(seed=21, number=6)
    for n, rows in enumerate(inputs):
        steps.write(rows)
        if n == 3:
            steps.start()
            lose_driver(steps, batch=n)
    steps.run()
    found = {int(path.stem): json.loads(path.read_text()) for path in (steps.folder / "out").glob("*.json")}
    assert sorted(found) == list(range(6))
    for n, rows in found.items():
        assert {shop: [number, top] for shop, number, top in rows} == tops(inputs[: n + 1])


def test_one_life_with_steps_before_and_after(steps: Work, dry_runs: list[DataStreamWriter]) -> None:
    """Duplicates across batches before, windows after: lost driver, rescaling, savepoint moved and forked, nothing left over."""
    steps.entrypoint = "windows"
    steps.spec["sparkConf"] |= CHANGELOGS | SHORT
    inputs = files(seed=22, number=6)
    given = [[*rows, *(inputs[n - 1] if n else [])] for n, rows in enumerate(inputs)]
    steps.write(given[0])
    steps.write(given[1])
    job = steps.start()
    wait_until(lambda: job.status().input_rows >= 80, 240, "two files")
    wait_until(lambda: windows_of(steps) == closed_windows(inputs[:2]), 240, "their windows")
    last = max(int(path.stem) for path in (steps.folder / "out" / "_spark_metadata").glob("[!.]*"))  # some end in .compact
    lose_driver(steps, batch=last)

    steps.write(given[2])
    job = steps.start()
    wait_until(lambda: windows_of(steps) == closed_windows(inputs[:3]), 240, "the windows of three files")
    assert len(dry_runs) == 1, "the sink had the last batch: Spark's state of it had to be made again"
    savepoint = job.trigger_savepoint(None, 60)
    assert job.rescale(3, 90).parallelism == 3
    steps.write(given[3])  # not before: a query that was started anew runs no batch just for what its watermark closed before
    wait_until(lambda: windows_of(steps) == closed_windows(inputs[:4]), 240, "the windows of four files")
    job.cancel()
    steps.write(given[4])
    steps.write(given[5])
    steps.run()
    assert windows_of(steps) == closed_windows(inputs)
    assert steps.state("number", "number") == finals(counted(by("account", inputs)), 1)
    newest = open_checkpoint(f"{steps.storage}/job", open_store)
    named = {paths.resolve_reference(newest.key, pack.path) for pack in newest.metadata.spark_state}
    assert named
    assert packs(steps) == named, "packs that no checkpoint names are deleted"
    assert verify(newest.url).sound

    moved = steps.folder / "elsewhere" / "savepoint"
    moved.parent.mkdir()
    shutil.move(local_path(savepoint.path), moved)
    shutil.rmtree(steps.folder / "storage" / "job")
    assert verify(f"file://{moved}").sound
    fork = Work(folder=steps.folder, name="fork", out="fork", script=SCRIPT, entrypoint="windows", spec=steps.spec)
    fork.run(restore_from=f"file://{moved}", parallelism=1)
    assert windows_of(fork) == sorted(set(closed_windows(inputs)) - set(closed_windows(inputs[:3])))
    damaged = next(moved.glob("spark-state/*"))
    damaged.write_bytes(damaged.read_bytes()[:-60] + bytes(60))
    assert not verify(f"file://{moved}").sound


@pytest.mark.exhaustive
def test_a_join_of_streams_and_a_limit(steps: Work) -> None:
    """Each row of the keyed step meets all earlier rows of its account, also those that a lost driver had read; 600 pairs in all."""
    steps.entrypoint = "joined"
    inputs = files(seed=23, number=5, accounts=10)
    steps.write(inputs[0])
    steps.write(inputs[1])
    steps.start()
    lose_driver(steps, batch=1)
    for rows in inputs[2:]:
        steps.write(rows)
    steps.run()
    found = Counter(steps.rows())
    assert found.total() == 600
    assert found <= pairs(inputs)
    assert sum(pairs(inputs[:2]).values()) < 600 < sum(pairs(inputs).values())
