"""Creates, fills and reads topics of the broker that runs in this container.

python topics.py create TOPIC PARTITIONS
python topics.py send TOPIC            # a message per line of standard input: a JSON list of key and value
python topics.py read TOPIC            # all committed messages, as such lines, each partition in its order
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

WAIT_S = 100
"""Longest wait for the broker, which may restart meanwhile."""
BROKER = {"bootstrap.servers": "127.0.0.1:9093"}


def create(topic: str, partitions: int) -> None:
    """Creates a topic."""
    admin = AdminClient(BROKER)  # which must outlive its answers
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[topic].result(WAIT_S)


def send(topic: str) -> None:
    """Sends what comes, until standard input ends; idempotently, so that a restart of the broker repeats nothing."""
    failed = []
    producer = Producer({**BROKER, "partitioner": "murmur2_random", "enable.idempotence": True, "linger.ms": 5})
    for line in sys.stdin:
        key, value = json.loads(line)
        producer.produce(topic, key=key, value=value, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
    left = producer.flush(WAIT_S)
    if left or failed:
        sys.exit(f"{left} messages were not sent in time, {len(failed)} were refused: {failed[:1]}")


def read(topic: str) -> None:
    """Prints what a consumer that reads committed messages sees now."""
    options = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({**BROKER, **options})
    for partition in consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(WAIT_S)
            if message is None:
                sys.exit(f"{topic}/{partition} cannot be read to its end")
            if message.error() is None:
                print(json.dumps([message.key().decode(), message.value().decode()]))
            elif message.error().name() == "_PARTITION_EOF":
                break
            elif not message.error().retriable():
                sys.exit(f"{topic}/{partition}: {message.error()}")
    consumer.close()


if __name__ == "__main__":
    command, topic, *more = sys.argv[1:]
    if command == "create":
        create(topic, int(more[0]))
    else:
        {"send": send, "read": read}[command](topic)
