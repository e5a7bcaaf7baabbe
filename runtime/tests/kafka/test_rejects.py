"""Records that are no payment, on real Spark and a real broker: they go to a dead-letter topic, exactly once."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from .broker import Broker
from .job_runs import EXAMPLE, PaymentsJob

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(1500)]
POISON: list[tuple[str | None, str]] = [
    (None, "not JSON"),
    ("bob", '{"cents": 5}'),
    (None, '{"account": "' + "x" * 5_000_000 + '", "cents": 1}'),
]


def test_poison_records_go_to_a_dead_letter_topic(broker: Broker, tmp_path: Path) -> None:
    """Balances are those of the payments, and each dead letter names its place."""
    job, rejects = PaymentsJob(broker, tmp_path), broker.topic()
    job.source = topic_of_large_records(broker)
    job.spec["job"] = {"script": str(EXAMPLE / "rejects.py"), "args": [broker.address, job.source, job.target, rejects]}
    job.send(1, 200)
    producer = Producer({"bootstrap.servers": broker.address, "message.max.bytes": 8 << 20})
    for key, value in POISON:
        producer.produce(job.source, key=key, value=value)
    assert producer.flush(60) == 0
    job.send(2, 200)
    job.finish()
    job.check()
    letters = broker.read(rejects)
    assert sorted(len(message.value() or b"") for message in letters) == [8, 12, 1000]
    places = [bytes(value or b"").decode() for message in letters for _, value in message.headers() or []]
    assert len(places) == 3
    assert all(place.startswith(f"topic {job.source}, partition ") for place in places)


def topic_of_large_records(broker: Broker) -> str:
    """Create a topic that takes records of 5 MB; returns its name."""
    name, admin = f"large-{uuid4().hex[:12]}", broker.admin
    topic = NewTopic(name, num_partitions=2, replication_factor=1, config={"max.message.bytes": str(8 << 20)})
    for created in admin.create_topics([topic]).values():
        created.result(60)
    return name
