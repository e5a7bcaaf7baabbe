"""A real Kafka broker for tests: Maven's jars at the versions of ``broker.lock``, started as one process with its own folder and free ports.

python -m runtime.tests.kafka.broker    # fetches the jars, starts a broker and prints its address; ends with its standard input
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic
from runtime.tests.certificates import authority_of, signed_by
from runtime.tests.storage.emulators import free_port

from statefulspark.connectors.jars import (
    REPOSITORY_VARIABLE,
    ChecksumError,
    FetchError,
    fetch_jars,
    missing_jars,
    read_lock,
    repository_url,
)
from statefulspark.job.spark.java import find_java_home

_REPOSITORY = Path(__file__).resolve().parents[3]
_LOCK = Path(__file__).with_name("broker.lock")
CONNECTOR_LOCK = _REPOSITORY / "runtime" / "src" / "statefulspark" / "connectors" / "kafka.lock"
START_S = 400.0
READ_S = 120.0

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CLIENT://127.0.0.1:{client},SECURED://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=CLIENT://127.0.0.1:{client},SECURED://127.0.0.1:{secured}
listener.security.protocol.map=CLIENT:PLAINTEXT,SECURED:SASL_SSL,CONTROLLER:PLAINTEXT
listener.name.secured.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secured.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={folder}/broker.pem
inter.broker.listener.name=CLIENT
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.enable=false
"""
# Without the class archive that tests give Spark's JVMs: a broker with another class path would start without any.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
QUEUED_MAX = 50_000
"""Records that wait for the broker; librdkafka refuses more than 100,000."""
_JAVA = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def fetched(lock: Path, name: str) -> Path:
    """Folder with the jars of a lock file, in ``out/emulators``; skips the test if they cannot be fetched."""
    root = os.environ.get("STATEFULSPARK_EMULATORS")
    folder = (Path(root) if root else _REPOSITORY / "out" / "emulators") / name
    jars = read_lock(lock)
    if missing_jars(jars, folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            try:
                fetch_jars(jars, folder, lambda _: None, source=repository_url(os.environ.get(REPOSITORY_VARIABLE)))
            except ChecksumError:
                raise
            except FetchError as error:
                pytest.skip(f"{name} cannot be fetched from Maven: {error}")
    return folder


class Broker:
    """One broker. It can be killed and started again; its data and its address stay.

    Args:
        folder: Its own, empty.
        jars: Folder with the jars of ``broker.lock``.
    """

    def __init__(self, folder: Path, jars: Path) -> None:
        self._folder = folder
        self._jars = jars
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._secured_port = free_port()
        authority = authority_of()
        signed = signed_by(authority)
        (folder / "broker.pem").write_bytes(signed.key + signed.certificate)
        self.authority = authority.certificate
        """Certificate by which clients know the broker at its secured address."""
        text = _PROPERTIES.format(
            client=self._port, secured=self._secured_port, controller=free_port(), folder=folder, data=folder / "data"
        )
        (folder / "server.properties").write_text(text)
        formatted = self._command(
            "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(folder / "server.properties")
        )
        done = subprocess.run(formatted, env=_ENVIRONMENT, capture_output=True, text=True, timeout=START_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def address(self) -> str:
        """For ``bootstrap.servers``."""
        return f"127.0.0.1:{self._port}"

    @property
    def secured_address(self) -> str:
        """Address with TLS, and SCRAM-SHA-512 for users that `add_user` has added."""
        return f"127.0.0.1:{self._secured_port}"

    def add_user(self, name: str, password: str) -> None:
        """Add a user, or change the password of one."""
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin = self.admin
        changed = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, credential, password.encode())])
        changed[name].result(60)

    @property
    def admin(self) -> AdminClient:
        """A client that creates topics and reads offsets of groups."""
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def start(self) -> None:
        """Start the broker and wait until it answers."""
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._folder / "server.properties")),
                stdin=subprocess.DEVNULL,
                env=_ENVIRONMENT,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
            )
        end_s = time.monotonic() + START_S
        admin = self.admin
        while time.monotonic() < end_s and self._process.poll() is None:
            try:
                admin.list_topics(timeout=5)
            except KafkaException:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"the broker did not come up: {(self._folder / 'broker.log').read_text(errors='replace')[-3000:]}")

    def kill(self) -> None:
        """Kill the broker's process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The broker answers nothing until the end of the block; connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def topic(self, partitions: int = 1) -> str:
        """Create a topic of its own name; returns the name."""
        name = f"topic-{uuid4().hex[:12]}"
        admin = self.admin  # which must outlive its answers
        for created in admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)]).values():
            created.result(60)
        return name

    def produce(self, topic: str, rows: Sequence[tuple[str | None, str]]) -> None:
        """Write keys and values."""
        producer = Producer({"bootstrap.servers": self.address, "partitioner": "murmur2_random", "linger.ms": 5})
        for key, value in rows:
            while len(producer) >= QUEUED_MAX:
                producer.poll(0.1)
            producer.produce(topic, key=key, value=value)
            producer.poll(0)
        assert producer.flush(60) == 0
        producer.close()

    def read(self, topic: str, *, committed: bool = True) -> list[Message]:
        """Returns the messages of a topic, partition by partition, as a consumer that reads committed messages, or all of them, sees them now."""
        return list(self._messages(topic, committed=committed))

    def _messages(self, topic: str, *, committed: bool) -> Iterator[Message]:
        level = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": f"reader-{uuid4().hex}",
                "isolation.level": level,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
            }
        )
        try:
            for partition in consumer.list_topics(topic, timeout=60).topics[topic].partitions:
                consumer.assign([TopicPartition(topic, partition, 0)])
                end_s = time.monotonic() + READ_S
                while True:
                    assert time.monotonic() < end_s, f"{topic}/{partition} cannot be read to its end"
                    for message in consumer.consume(1000, timeout=1):
                        error = message.error()
                        if error is None:
                            yield message
                        elif error.name() == "_PARTITION_EOF":
                            break
                        elif not error.retriable():
                            raise AssertionError(str(error))
                    else:
                        continue
                    break
        finally:
            consumer.close()

    def _command(self, main: str, *arguments: str) -> list[str]:
        java = find_java_home()
        assert java is not None
        return [f"{java}/bin/java", *_JAVA, "-cp", f"{self._jars}/*", main, *arguments]


@contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    """A broker until the end of the block."""
    broker = Broker(folder, fetched(_LOCK, "kafka-4.1.1"))
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root, running_broker(Path(root)) as shown:
        print(shown.address, flush=True)
        sys.stdin.read()
