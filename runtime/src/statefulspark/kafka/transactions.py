"""Writes one sink partition of one batch to Kafka in one transaction, together with the batch's number. The one home of confluent-kafka.

docs/rfcs/0015-kafka-sink.md explains the protocol and what follows from a crash at each step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from statefulspark.errors import FencedError, InvalidInputError, UnavailableError
from statefulspark.failpoints import reach
from statefulspark.kafka.bounded import bounded

T = TypeVar("T")

_CLOSE_S: Final = 5.0
_COORDINATOR_PAUSE_S: Final = 0.2
_NO_COORDINATOR: Final = frozenset({14, 15, 16})
"""Kafka's codes COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR."""
_POLL_EVERY: Final = 1000
"""Rows between two calls that let the client report what was delivered."""
_FENCED: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_FOR_GOOD: Final = frozenset(
    {
        "MSG_SIZE_TOO_LARGE",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "_AUTHENTICATION",
        "_UNKNOWN_TOPIC",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_PARTITION",
        "INVALID_TRANSACTION_TIMEOUT",
    }
)
"""Errors that need a person. The batch still runs again, by the restart strategy, because some of them pass."""


@dataclass(frozen=True, slots=True)
class Message:
    """A row for Kafka."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Settings of a sink, as its tasks need them."""

    identity: str
    """Beginning of its transactional ids and of the names of its consumer groups."""
    topic: str
    """The topic whose partition 0 the batches' numbers are stored for."""
    partitions: int
    """Number of sink partitions."""
    options: Mapping[str, Any] = field(repr=False)
    """Options of librdkafka; they may hold credentials."""
    transaction_timeout_s: float
    call_timeout_s: float

    def identity_of(self, partition: int) -> str:
        """Transactional id and consumer group of a sink partition."""
        return f"{self.identity}/{partition}"


def write_partition(settings: SinkSettings, partition: int, batch: int, messages: Iterable[Message]) -> int | None:
    """Writes the rows of one sink partition, unless Kafka has this batch already.

    Args:
        settings: The sink's.
        partition: Number of the sink partition.
        batch: Number of the batch.
        messages: The same ones in the same order whenever the batch runs again. They are not read if Kafka has the batch.

    Returns:
        Number of rows that were written; None if Kafka has the batch.

    Raises:
        UnavailableError: Kafka did not answer, refused the rows, or another task with the same transactional id has begun; the batch must run again.
        FencedError: The sink has a later batch.
    """
    client = _Client(settings)
    with client.producer(partition) as producer, client.consumer(partition) as consumer:
        client.call("begin a transaction", lambda: producer.init_transactions(settings.call_timeout_s), producer)
        marker = client.marker(consumer)
        if marker is not None and marker.batch > batch:
            raise FencedError(
                f"the Kafka sink {settings.identity!r} has batch {marker.batch} already, which is after batch {batch}: a newer driver writes to it"
            )
        if marker is not None and marker.batch == batch:
            return None
        client.call("begin a transaction", producer.begin_transaction, producer)
        try:
            rows = client.produce(producer, messages)
            reach("executor.kafka.produced")
            offset = client.offset(batch)
            group = client.call("add the batch's number", consumer.consumer_group_metadata, consumer)
            client.call(
                "add the batch's number", lambda: producer.send_offsets_to_transaction([offset], group, settings.call_timeout_s), producer
            )
            reach("executor.kafka.numbered")
            client.call("commit", lambda: producer.commit_transaction(settings.call_timeout_s), producer)
            reach("executor.kafka.committed")
        except BaseException:
            # The next task with this id aborts the transaction too, but until then consumers would wait.
            with suppress(Exception):
                client.bounded(lambda: producer.abort_transaction(_CLOSE_S), 2 * _CLOSE_S, producer)
            raise
        return rows


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch that a sink partition has written."""

    batch: int
    partitions: int
    """Number of sink partitions at that time."""


def written_batches(settings: SinkSettings) -> list[Marker]:
    """Returns the last batches that the sink partitions have written, without those that have written none.

    Raises:
        UnavailableError: Kafka did not answer.
    """
    client = _Client(settings)
    found = []
    for partition in range(settings.partitions):
        with client.consumer(partition) as consumer:
            found.append(client.marker(consumer))
    return [marker for marker in found if marker is not None]


class _Client:
    """Calls of confluent-kafka with a limit on the time that each may take."""

    def __init__(self, settings: SinkSettings) -> None:
        try:
            import confluent_kafka  # noqa: PLC0415  an extra
        except ImportError as error:
            raise InvalidInputError(
                "confluent-kafka is not installed", field="KafkaSink", remedy="pip install 'statefulspark[kafka]', for driver and executors"
            ) from error
        self._library: Any = confluent_kafka
        self._settings = settings
        self._problem = ""
        """The last error of a connection, as librdkafka reports it."""
        self._undelivered = ""
        """The first row that Kafka refused, and why."""
        self._hanging: list[Any] = []
        """Clients with a call that has not returned. Closing one under its call could crash the process, so it is left to the call's thread."""

    @contextmanager
    def producer(self, partition: int) -> Iterator[Any]:
        """A producer with the transactional id of a sink partition, until the end of the block."""
        settings, timeout_ms = self._settings, int(self._settings.transaction_timeout_s * 1000)
        # Java's partitioner, so that all producers of a topic agree, and a bound on the memory of rows that were not sent yet.
        defaults = {
            "linger.ms": 5,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "queue.buffering.max.kbytes": 65536,
            "message.timeout.ms": timeout_ms,
        }
        fixed = {
            "transactional.id": settings.identity_of(partition),
            "transaction.timeout.ms": timeout_ms,
            "delivery.report.only.error": True,
            "on_delivery": self._delivered,
        }
        yield from self._opened(self._library.Producer, defaults | dict(settings.options) | fixed)

    @contextmanager
    def consumer(self, partition: int) -> Iterator[Any]:
        """A consumer of the group of a sink partition, which reads nothing, until the end of the block."""
        # Options that only a producer has are ignored.
        fixed = {"group.id": self._settings.identity_of(partition), "enable.auto.commit": False, "isolation.level": "read_committed"}
        yield from self._opened(self._library.Consumer, dict(self._settings.options) | fixed)

    def _opened(self, kind: Callable[[dict[str, Any]], Any], options: dict[str, Any]) -> Iterator[Any]:
        try:
            client = kind({"log_level": 0} | options | {"error_cb": self._failed})
        except (self._library.KafkaException, ValueError, TypeError) as error:
            text = str(error.args[0].str()) if isinstance(error, self._library.KafkaException) else str(error)
            raise InvalidInputError(f"Kafka's client refuses the options: {text}", field="KafkaSink(options=...)") from None
        try:
            yield client
        finally:
            with suppress(Exception):
                self.bounded(client.close, _CLOSE_S, client)

    def marker(self, consumer: Any) -> Marker | None:
        """Returns the last batch that the consumer's sink partition has written."""
        asked = [self._library.TopicPartition(self._settings.topic, 0)]
        (found,) = self.call("read the last batch's number", lambda: self._committed(consumer, asked), consumer)
        if found.error is not None:
            raise self._unavailable("read the last batch's number", found.error.str())
        if found.offset < 0:
            return None
        return Marker(found.offset - 1, int(found.metadata or self._settings.partitions))

    def _committed(self, consumer: Any, asked: list[Any]) -> Any:
        """Returns the committed offsets. librdkafka does not wait for a coordinator that is being elected, as on a cluster that nobody has used before."""
        end_s = time.monotonic() + self._settings.call_timeout_s
        while True:
            try:
                return consumer.committed(asked, max(_COORDINATOR_PAUSE_S, end_s - time.monotonic()))
            except self._library.KafkaException as error:
                if error.args[0].code() not in _NO_COORDINATOR or time.monotonic() > end_s:
                    raise
            time.sleep(_COORDINATOR_PAUSE_S)

    def offset(self, batch: int) -> Any:
        """Returns the committed offset that stands for a batch."""
        return self._library.TopicPartition(self._settings.topic, 0, batch + 1, str(self._settings.partitions))

    def produce(self, producer: Any, messages: Iterable[Message]) -> int:
        """Hands all rows to the producer; returns their number."""
        rows = 0
        for message in messages:
            arguments: dict[str, Any] = {"key": message.key, "value": message.value, "headers": message.headers}
            if message.partition is not None:
                arguments["partition"] = message.partition
            if message.timestamp_ms is not None:
                arguments["timestamp"] = message.timestamp_ms
            self._produce(producer, message.topic, arguments)
            rows += 1
            if not rows % _POLL_EVERY:
                producer.poll(0)
                if self._undelivered:
                    raise self._unavailable("write", self._undelivered)
        return rows

    def _produce(self, producer: Any, topic: str, arguments: dict[str, Any]) -> None:
        end_s = time.monotonic() + self._settings.call_timeout_s
        while True:
            try:
                producer.produce(topic, **arguments)
            except BufferError:  # the queue is full; those before must be delivered first
                producer.poll(0.1)
                if time.monotonic() > end_s or self._undelivered:
                    raise self._unavailable("write", self._undelivered or "rows are not accepted in time") from None
            except self._library.KafkaException as error:
                raise self._unavailable("write", _text(error.args[0])) from None
            else:
                return

    def call(self, purpose: str, work: Callable[[], T], client: Any) -> T:
        """Runs one call of the library.

        Args:
            purpose: What for, in an error.
            work: The call.
            client: The producer or consumer that is called. It reports errors of connections and of rows only when it is polled.

        Raises:
            UnavailableError: It failed or took too long.
        """
        try:
            return self.bounded(work, self._settings.call_timeout_s + _CLOSE_S, client)
        except TimeoutError as error:
            problem = str(error)
        except self._library.KafkaException as error:
            problem = _text(error.args[0])
        with suppress(Exception):
            bounded(lambda: client.poll(0), _CLOSE_S)
        raise self._unavailable(purpose, self._undelivered or problem)

    def bounded(self, work: Callable[[], T], limit_s: float, client: Any) -> T:
        """Runs a call of a client, unless an earlier one hangs: librdkafka may wait past the time limit that it is given (its issue 5456)."""
        if client in self._hanging:
            raise TimeoutError("an earlier call has not returned")
        try:
            return bounded(work, limit_s)
        except TimeoutError:
            self._hanging.append(client)
            raise

    def _unavailable(self, purpose: str, problem: str) -> UnavailableError:
        connection = f" ({self._problem})" if self._problem and self._problem not in problem else ""
        return UnavailableError(f"the Kafka sink {self._settings.identity!r} cannot {purpose}: {problem}{connection}. The batch runs again")

    def _failed(self, error: Any) -> None:
        self._problem = str(error.str())

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and not self._undelivered and error.name() not in {"_PURGE_QUEUE", "_PURGE_INFLIGHT"}:
            self._undelivered = f"topic {message.topic()!r}: {_text(error)}"


def _text(error: Any) -> str:
    name, text = str(error.name()), str(error.str())
    if name in _FENCED:
        return "another task with the same transactional id has begun"
    return f"{text} [{name}]" if name in _FOR_GOOD else text
