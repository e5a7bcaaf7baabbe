"""Spark's own state with packs on S3, when the driver's disk is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime.tests.s3_server import ACCESS_KEY, BUCKET, s3_server

from .oracles import files
from .test_spark_steps import SHORT, lose_driver, packs, tops
from .work import Work

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def on_s3(work: Work) -> Iterator[Work]:
    """The job's folder is on S3, as moto serves it on loopback; Spark itself knows nothing of S3."""
    with s3_server() as server:
        keys = {"region": "us-east-1", "accessKeyId": ACCESS_KEY, "secretAccessKey": ACCESS_KEY}
        work.checkpointing = {"dir": f"s3://{BUCKET}/{work.folder.name}", "storage": {"endpoint": server.endpoint} | keys}
        work.script = Path(__file__).parent / "spark_steps.py"
        work.spec = {"sparkConf": {"spark.sql.shuffle.partitions": "2"} | SHORT}
        yield work
        work.close()


def lose_driver_after(work: Work, inputs: list[list[dict[str, Any]]], *, batch: int) -> dict[int, list[list[Any]]]:
    """Run up to ``batch``, lose driver and disk, run the rest; what the sink got by batch."""
    for number, rows in enumerate(inputs):
        work.write(rows)
        if number == batch:
            work.start()
            lose_driver(work, batch=batch)
            assert packs(work), "Spark's state is on S3"
    work.run()
    found = {int(path.stem): json.loads(path.read_text()) for path in (work.folder / "out").glob("*.json")}
    assert sorted(found) == list(range(len(inputs)))
    return found


def test_an_aggregation(on_s3: Work) -> None:
    """Every batch's complete result is that of all rows so far."""
    on_s3.entrypoint = "complete"
    inputs = files(seed=41, number=4, rows=20)
    for number, rows in lose_driver_after(on_s3, inputs, batch=2).items():
        assert {shop: [count, top] for shop, count, top in rows} == tops(inputs[: number + 1])
