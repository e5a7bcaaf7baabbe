"""Python workers of slots and exchanges are forks of one daemon that has their modules loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runtime.tests.small_session import small_session

from statefulspark.config.manifest import validate_job
from statefulspark.job.spark.session import executor_environment, session_settings
from statefulspark.job.spark.worker_daemon import DAEMON_MODULE, ENVIRONMENT

_MODULE = "statefulspark.job.spark.worker_daemon"
_SLOT, _EXCHANGE = "statefulspark.slot.process", "statefulspark.exchange.task"


def _settings(tmp_path: Path, master: str, conf: dict[str, str]) -> dict[str, str]:
    document: dict[str, Any] = {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": "job"},
        "spec": {"job": {"script": "/job.py"}, "checkpointing": {"dir": f"file://{tmp_path}", "interval": "1m"}, "sparkConf": conf},
    }
    return session_settings(validate_job(document), master, 2)


def test_where_executors_have_this_package(tmp_path: Path) -> None:
    """Also in JVMs of their own on this machine; a cluster may get the package from Spark. What the manifest says wins."""
    assert _settings(tmp_path, "local[2]", {})[DAEMON_MODULE] == _MODULE
    assert _settings(tmp_path, "local-cluster[2,3,1024]", {})[DAEMON_MODULE] == _MODULE
    assert DAEMON_MODULE not in _settings(tmp_path, "spark://host:7077", {})
    assert _settings(tmp_path, "local[2]", {DAEMON_MODULE: "pyspark.daemon"})[DAEMON_MODULE] == "pyspark.daemon"


@pytest.mark.slow
def test_workers_have_their_modules_and_can_use_them() -> None:
    """A task of an RDD, as slots are, and one of Spark SQL, as exchanges are: what was loaded before the fork, and that Arrow works after it."""

    def loaded() -> list[bool]:
        return [name in sys.modules for name in (_SLOT, _EXCHANGE)]

    def of_rdd(_: Iterable[int]) -> Iterable[tuple[int, list[bool]]]:
        before = loaded()
        table = pa.table({"n": list(range(100_000))}).group_by("n").aggregate([("n", "sum")])
        yield os.getppid(), [*before, table.num_rows == 100_000]

    def of_sql(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before = loaded()
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"daemon": [os.getppid()] * batch.num_rows, "loaded": [before] * batch.num_rows})

    with small_session("local[2]", {DAEMON_MODULE: _MODULE} | executor_environment(ENVIRONMENT)) as session:
        daemons = set()
        for daemon, found in session.sparkContext.parallelize(range(2), 2).mapPartitions(of_rdd).collect():
            assert found == [True, True, True]
            daemons.add(daemon)
        for row in session.range(2).mapInArrow(of_sql, "daemon long, loaded array<boolean>").collect():
            assert row.loaded == [True, True]
            daemons.add(row.daemon)
        assert len(daemons) == 1
