"""A sink partition writes each batch once on a real broker: written twice, killed at each step, fenced, late, and without a broker."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from runtime.tests.storage.emulators import free_port

from statefulspark.errors import FencedError, InvalidInputError, UnavailableError
from statefulspark.kafka import transactions
from statefulspark.kafka.bounded import bounded
from statefulspark.kafka.transactions import Marker, Message, SinkSettings, write_partition, written_batches

from .broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

WRITER = """
import json, os, sys
from statefulspark.kafka.transactions import Message, SinkSettings, write_partition
for point, settings in json.loads(sys.argv[1]).items():
    if (child := os.fork()) == 0:
        os.environ["STATEFULSPARK_FAILPOINTS"] = f"executor.kafka.{point}"
        rows = [Message(settings["topic"], f"0-{i}".encode(), str(i % 3).encode()) for i in range(50)]
        write_partition(SinkSettings(**settings), 0, 0, rows)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def fields(broker: Broker, topic: str, **changed: Any) -> dict[str, Any]:
    found = {
        "identity": f"test/{topic}",
        "topic": topic,
        "partitions": 1,
        "options": {"bootstrap.servers": broker.address},
        "transaction_timeout_s": 120.0,
        "call_timeout_s": 120.0,
    }
    return found | changed


def rows(topic: str, batch: int, count: int = 50) -> list[Message]:
    return [Message(topic, f"{batch}-{number}".encode(), str(number % 3).encode()) for number in range(count)]


def values(broker: Broker, topic: str, *, committed: bool = True) -> list[str]:
    return [(message.value() or b"").decode() for message in broker.read(topic, committed=committed)]


def expected(*batches: int, count: int = 50) -> list[str]:
    return [f"{batch}-{number}" for batch in batches for number in range(count)]


def test_a_batch_is_written_once(broker: Broker) -> None:
    topic = broker.topic()
    settings = SinkSettings(**fields(broker, topic))
    assert written_batches(settings) == []
    for batch in (0, 0, 1, 3, 3):
        written = write_partition(settings, 0, batch, rows(topic, batch))
        assert written in {50, None}
    assert values(broker, topic) == expected(0, 1, 3)
    assert written_batches(settings) == [Marker(3, 1)]
    with pytest.raises(FencedError, match="has batch 3 already, which is after batch 2"):
        write_partition(settings, 0, 2, rows(topic, 2))
    assert values(broker, topic, committed=False) == expected(0, 1, 3)


def test_a_skipped_batch_is_not_read(broker: Broker) -> None:
    topic = broker.topic()
    settings = SinkSettings(**fields(broker, topic))
    write_partition(settings, 0, 5, rows(topic, 5))

    def never(_: int) -> Message:
        raise AssertionError

    assert write_partition(settings, 0, 5, map(never, [0])) is None


def test_what_a_message_has(broker: Broker) -> None:
    """Null values, null keys, headers, a partition and a timestamp."""
    topic = broker.topic(3)
    sent = [
        Message(topic, None, b"deleted", [("a", b"1"), ("b", None)], 2, 1_700_000_000_000),
        Message(topic, b"text", None, None, 1, None),
    ]
    write_partition(SinkSettings(**fields(broker, topic)), 0, 0, sent)
    second, first = broker.read(topic)
    assert (first.key(), first.value(), first.headers(), first.partition()) == (b"deleted", None, [("a", b"1"), ("b", None)], 2)
    assert first.timestamp()[1] == 1_700_000_000_000
    assert (second.key(), second.value(), second.headers(), second.partition()) == (None, b"text", None, 1)


@pytest.mark.kill
def test_a_killed_task_leaves_all_or_nothing(broker: Broker) -> None:
    """After its rows, after the number, and after the commit: the batch that runs again makes up for exactly what is missing."""
    given = {point: fields(broker, broker.topic()) for point in ("produced", "numbered", "committed")}
    done = subprocess.run([sys.executable, "-c", WRITER, json.dumps(given)], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.split() == ["-9", "-9", "-9"], done.stderr
    for point, settings in given.items():
        written = write_partition(SinkSettings(**settings), 0, 0, rows(settings["topic"], 0))
        assert written == (None if point == "committed" else 50)
        assert values(broker, settings["topic"]) == expected(0)


def test_a_zombie_is_fenced(broker: Broker) -> None:
    """It had begun, was paused, and continues when its successor has written the batch and the next one."""
    topic = broker.topic()
    settings = SinkSettings(**fields(broker, topic))
    begun, go_on = threading.Event(), threading.Event()

    def paused() -> Iterator[Message]:
        yield from rows(topic, 0, 10)
        begun.set()
        assert go_on.wait(300)
        yield from rows(topic, 0)[10:]

    with ThreadPoolExecutor(1) as pool:
        zombie = pool.submit(write_partition, settings, 0, 0, paused())
        try:
            assert begun.wait(300)
            assert write_partition(settings, 0, 0, rows(topic, 0)) == 50
            assert write_partition(settings, 0, 1, rows(topic, 1)) == 50
        finally:
            go_on.set()
        with pytest.raises(UnavailableError, match="another task with the same transactional id has begun"):
            zombie.result(300)
    assert values(broker, topic) == expected(0, 1)


def test_rows_that_fail_leave_nothing(broker: Broker) -> None:
    topic = broker.topic()
    settings = SinkSettings(**fields(broker, topic))

    def failing() -> Iterator[Message]:
        yield from rows(topic, 0, 10)
        raise UnavailableError("a slot was lost")

    with pytest.raises(UnavailableError, match="a slot was lost"):
        write_partition(settings, 0, 0, failing())
    assert values(broker, topic) == []
    assert write_partition(settings, 0, 0, rows(topic, 0)) == 50
    assert values(broker, topic) == expected(0)


def test_a_missing_topic_is_named(broker: Broker) -> None:
    topic = broker.topic()
    options = {"bootstrap.servers": broker.address, "topic.metadata.propagation.max.ms": 1000}
    settings = SinkSettings(**fields(broker, topic, options=options))
    with pytest.raises(UnavailableError, match=r"nosuchtopic|Unknown topic"):
        write_partition(settings, 0, 0, rows("nosuchtopic", 0))
    assert written_batches(settings) == []


def test_a_broker_that_is_away_fails_the_batch(tmp_path: Path) -> None:
    """With its address and without what the options hold."""
    address = f"127.0.0.1:{free_port()}"
    settings = SinkSettings(
        identity="statefulspark/job/out",
        topic="out",
        partitions=1,
        options={"bootstrap.servers": address, "sasl.password": "hunter2", "sasl.username": "me"},
        transaction_timeout_s=10.0,
        call_timeout_s=2.0,
    )
    with pytest.raises(
        UnavailableError, match=f"'statefulspark/job/out' cannot begin a transaction.*{address}.*The batch runs again"
    ) as failed:
        write_partition(settings, 0, 0, rows("out", 0))
    assert "hunter2" not in str(failed.value) + repr(settings)


def test_an_option_that_the_client_does_not_know_is_named(broker: Broker) -> None:
    settings = SinkSettings(**fields(broker, "out", options={"bootstrap.servers": broker.address, "sasl.pasword": "hunter2"}))
    with pytest.raises(InvalidInputError, match=r'No such configuration property: "sasl.pasword"') as refused:
        write_partition(settings, 0, 0, rows("out", 0))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(("errors", "call_timeout_s"), [(3, 60.0), (10**9, 0.2)], ids=["at-last", "never"])
def test_a_coordinator_that_is_being_elected_is_waited_for(monkeypatch: pytest.MonkeyPatch, errors: int, call_timeout_s: float) -> None:
    """A cluster that nobody has used before answers so for some seconds; librdkafka gives up at once."""
    monkeypatch.setattr(transactions, "_COORDINATOR_PAUSE_S", 0.01)
    asked = 0

    def committed(_: Any, __: float) -> list[confluent_kafka.TopicPartition]:
        nonlocal asked
        asked += 1
        if asked <= errors:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(14 + asked % 3))
        return [confluent_kafka.TopicPartition("numbers", 0, 8, "4")]

    settings = SinkSettings(
        identity="test", topic="numbers", partitions=4, options={}, transaction_timeout_s=60, call_timeout_s=call_timeout_s
    )
    consumer, client = SimpleNamespace(committed=committed, poll=lambda _: None), transactions._Client(settings)
    if errors == 3:
        assert client.marker(consumer) == Marker(7, 4)
    else:
        with pytest.raises(UnavailableError, match="cannot read the last batch's number"):
            client.marker(consumer)


def test_a_call_that_hangs_is_given_up() -> None:
    release = threading.Event()
    try:
        with pytest.raises(TimeoutError, match="no response within 0 s"):
            bounded(lambda: release.wait(600), 0.1)
    finally:
        release.set()
    assert bounded(lambda: 7, 60) == 7


def test_a_client_in_which_a_call_hangs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither aborted nor closed under its call: librdkafka frees what the call uses. The batch fails in time."""
    called, release = [], threading.Event()

    class Stub:
        def __init__(self, options: dict[str, Any]) -> None:
            self.options = options

        def committed(self, *_: Any) -> list[Any]:
            return [SimpleNamespace(error=None, offset=-1001)]

        def send_offsets_to_transaction(self, *_: Any) -> None:
            release.wait(600)

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: called.append((name, "transactional.id" in self.options))

    monkeypatch.setattr(confluent_kafka, "Producer", Stub)
    monkeypatch.setattr(confluent_kafka, "Consumer", Stub)
    monkeypatch.setattr(transactions, "_CLOSE_S", 3.0)
    settings = SinkSettings(identity="a", topic="out", partitions=1, options={}, transaction_timeout_s=10.0, call_timeout_s=2.0)
    try:
        with pytest.raises(UnavailableError, match="cannot add the batch's number: no response within"):
            write_partition(settings, 0, 0, rows("out", 0, 1))
    finally:
        release.set()
    assert ("close", False) in called
    assert not {("close", True), ("abort_transaction", True)} & set(called)


@pytest.mark.exhaustive
@pytest.mark.kill
@pytest.mark.parametrize("point", ["executor.kafka.produced", "executor.kafka.numbered"])
def test_a_broker_that_is_frozen_in_a_transaction(
    point: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The client may wait past its time limit for the batch's number (its issue 5456). The batch fails in time, and when it runs again it is there once."""
    from .broker import running_broker  # noqa: PLC0415  one of its own

    with running_broker(tmp_path_factory.mktemp("frozen")) as own, ExitStack() as freezing:
        topic = own.topic()
        settings = SinkSettings(**fields(own, topic, call_timeout_s=5.0))
        with monkeypatch.context() as patched:
            patched.setattr(transactions, "reach", lambda name: freezing.enter_context(own.frozen()) if name == point else None)
            begun = time.monotonic()
            with pytest.raises(UnavailableError, match="The batch runs again"):
                write_partition(settings, 0, 0, rows(topic, 0))
        assert time.monotonic() - begun < 120
        freezing.close()
        end_s = time.monotonic() + 300
        while time.monotonic() < end_s:
            try:
                write_partition(settings, 0, 0, rows(topic, 0))
            except UnavailableError:
                continue
            break
        assert values(own, topic) == expected(0)


@pytest.mark.exhaustive
@pytest.mark.kill
def test_a_broker_that_restarts_in_a_transaction(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The batch fails, or is written; run again until it is written, it is there once."""
    from .broker import running_broker  # noqa: PLC0415  one of its own

    with running_broker(tmp_path_factory.mktemp("restarting")) as own:
        topic = own.topic()
        settings = SinkSettings(**fields(own, topic, call_timeout_s=30.0))
        restarted = False

        def interrupted() -> Iterator[Message]:
            nonlocal restarted
            yield from rows(topic, 0, 10)
            if not restarted:
                restarted = True
                own.kill()
                own.start()
            yield from rows(topic, 0)[10:]

        end_s = time.monotonic() + 300
        while time.monotonic() < end_s:
            try:
                write_partition(settings, 0, 0, interrupted())
            except UnavailableError:
                continue
            break
        assert values(own, topic) == expected(0)
