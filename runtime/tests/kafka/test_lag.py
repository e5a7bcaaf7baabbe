"""The lag that the status shows of a source on a real broker, against the offsets that a plain consumer sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from statefulspark.job.metrics.sources import lag_of, sources_of
from statefulspark.job.spark.java import find_java_home

from .broker import CONNECTOR_LOCK, Broker, fetched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

QUERY = Path(__file__).with_name("limited_query.py")


def test_the_lag_is_what_a_consumer_finds_behind_the_records_that_were_read(broker: Broker, tmp_path: Path) -> None:
    """After three batches of 30 records: per partition, the worst first, and in total."""
    topic, target = broker.topic(3), tmp_path / "found.json"
    broker.produce(topic, [(f"user-{number * number % 7}", str(number)) for number in range(600)])
    jars = ",".join(map(str, sorted(fetched(CONNECTOR_LOCK, "kafka-connector").glob("*.jar"))))
    done = subprocess.run(
        [sys.executable, str(QUERY), broker.address, topic, jars, str(target)],
        env=os.environ | {"JAVA_HOME": find_java_home() or "", "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert target.exists(), done.stderr[-6000:]
    found = json.loads(target.read_text(encoding="utf-8"))
    read = {int(partition): count for partition, count in found["read"].items()}
    assert 0 < sum(read.values()) <= 90
    behind = {partition: end - read.get(partition, 0) for partition, end in _ends(broker, topic).items()}
    (source,) = sources_of(found["progress"])
    assert [(one.topic, one.rows) for one in source.partitions] == [(topic, rows) for rows in sorted(behind.values(), reverse=True)]
    assert {int(one.partition): one.rows for one in source.partitions} == behind
    lag = lag_of([source], found["progress"])
    assert lag is not None
    assert (lag.rows, lag.unknown_sources, source.partitions_left_out) == (sum(behind.values()), 0, 0)
    assert lag.at_ms is not None


def _ends(broker: Broker, topic: str) -> dict[int, int]:
    """Records of each partition, by a consumer."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "ends"})
    try:
        return {partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)[1] for partition in range(3)}
    finally:
        consumer.close()
