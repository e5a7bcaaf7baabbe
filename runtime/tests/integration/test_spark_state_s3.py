"""Spark's own state with packs on S3, and of a user's own transformWithState, when the driver's disk is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime.tests.s3_server import ACCESS_KEY, BUCKET, s3_server

from .oracles import counted, files
from .test_spark_steps import CHANGELOGS, ROCKSDB, SHORT, lose_driver, packs, tops
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


@pytest.mark.parametrize("provider", [{}, CHANGELOGS], ids=["hdfs", "rocksdb"])
def test_an_aggregation(on_s3: Work, provider: dict[str, str]) -> None:
    """Every batch's complete result is that of all rows so far."""
    on_s3.entrypoint = "complete"
    on_s3.spec["sparkConf"] |= provider
    inputs = files(seed=41, number=4, rows=20)
    for number, rows in lose_driver_after(on_s3, inputs, batch=2).items():
        assert {shop: [count, top] for shop, count, top in rows} == tops(inputs[: number + 1])


def test_transform_with_state(on_s3: Work) -> None:
    """Spark's Python transformWithState after a keyed step goes on where it was: the number of each row of a shop is never given twice."""
    pytest.importorskip("google.protobuf", reason="Spark's worker for transformWithState needs it")
    on_s3.entrypoint = "transformed"
    on_s3.spec["sparkConf"] |= ROCKSDB
    inputs = files(seed=42, number=4, rows=20)
    found = lose_driver_after(on_s3, inputs, batch=2)
    seen: Counter[str] = Counter()
    numbers = counted([(each["account"], each["amount"]) for rows in inputs for each in rows])
    for number, rows in sorted(found.items()):
        given = inputs[number]
        totals: dict[str, list[int]] = {}
        for each, (_, _, total) in zip(given, numbers[20 * number :], strict=False):
            totals.setdefault(each["shop"], []).append(total)
        wanted = []
        for shop, shop_totals in totals.items():
            wanted.append([shop, seen[shop] + len(shop_totals), max(shop_totals)])
            seen[shop] += len(shop_totals)
        assert sorted(rows) == sorted(wanted)
