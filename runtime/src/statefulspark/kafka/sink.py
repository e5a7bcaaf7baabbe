"""KafkaSink: writes each batch to Kafka exactly once, as a function for `foreachBatch` and `Job.outputs`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import structlog
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the usual name
from pyspark.sql.types import BinaryType, DataType, LongType, StringType

from statefulspark.errors import InvalidInputError
from statefulspark.kafka.transactions import Message, SinkSettings, write_partition, written_batches
from statefulspark.pipeline.job import Job

_UID: Final = re.compile(r"[A-Za-z0-9._-]{1,80}")
_OURS: Final = (
    "transactional.id", "transaction.timeout.ms", "enable.idempotence", "group.id", "isolation.level", "on_delivery", "error_cb", "bootstrap.servers",
)  # fmt: skip
_TIMEOUT_MAX_S: Final = 900.0
"""Kafka's own limit of transaction.timeout.ms, unless its operator has changed it."""
_COLUMNS: Final = {
    "key": "string or binary",
    "value": "string or binary",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
    "headers": "array<struct<key string, value binary>>",
}
_RESULT: Final = "partition int, rows long"

_log = structlog.get_logger("statefulspark.kafka")


class KafkaSink:
    """Writes batches to Kafka, each exactly once for consumers with ``isolation.level=read_committed``.

    The columns are those of Spark's own Kafka sink: ``value`` and, if you like, ``key``, ``headers``, ``topic`` and ``partition``; also
    ``timestamp``. Rows with equal keys stay in order.

    Example::

        sink = KafkaSink(job, uid="counts", bootstrap_servers="kafka:9092", topic="counts")
        return counts.selectExpr("user AS key", "to_json(struct(*)) AS value").writeStream.foreachBatch(sink)

    Args:
        job: The job that ``pipeline(job)`` receives.
        uid: Name of the sink, unique in the job. Transactional ids and consumer groups contain it, so keep it.
        bootstrap_servers: Addresses of brokers.
        topic: Topic of rows without a ``topic`` column. It must exist, also if all rows have one: batch numbers are stored for its partition 0.
        options: Options of librdkafka, such as ``security.protocol``, ``sasl.mechanism``, ``sasl.username``, ``sasl.password``, ``ssl.ca.location``,
            ``compression.type``.
        partitions: Number of sink partitions, each of which is a task and a transaction per batch. It cannot change later.
        transaction_timeout_s: Time after which Kafka aborts a transaction (at most 900). Writing a sink partition of a batch must not take longer.
        call_timeout_s: Maximum time of one request to Kafka, with its retries.
        transactional_id_prefix: Beginning of all transactional ids and consumer groups. Needed if two jobs of the same name use one Kafka cluster.

    Raises:
        InvalidInputError: An argument is wrong, or another sink of the job has the uid.
    """

    def __init__(
        self,
        job: Job,
        *,
        uid: str,
        bootstrap_servers: str,
        topic: str,
        options: Mapping[str, Any] | None = None,
        partitions: int = 4,
        transaction_timeout_s: float = 300.0,
        call_timeout_s: float = 60.0,
        transactional_id_prefix: str = "statefulspark",
    ) -> None:
        for name, given in (("uid", uid), ("transactional_id_prefix", transactional_id_prefix)):
            if not _UID.fullmatch(given):
                raise InvalidInputError(f"{given!r} is not a name", field=name, remedy="Use 1 to 80 letters, digits, '.', '_' and '-'")
        if not 1 <= partitions <= 256:
            raise InvalidInputError(f"{partitions} is not between 1 and 256", field="partitions", remedy="Set a number of sink partitions")
        if not 1 <= transaction_timeout_s <= _TIMEOUT_MAX_S:
            raise InvalidInputError(
                f"{transaction_timeout_s} is not between 1 and 900", field="transaction_timeout_s", remedy="Set a number of seconds"
            )
        if taken := sorted(set(options or ()) & set(_OURS)):
            raise InvalidInputError(
                f"{', '.join(taken)}: the sink sets this itself", field="options", remedy="Remove it, or use the argument of the sink"
            )
        self._settings = SinkSettings(
            identity=f"{transactional_id_prefix}/{job.id}/{uid}",
            topic=topic,
            partitions=partitions,
            options={"bootstrap.servers": bootstrap_servers, **(options or {})},
            transaction_timeout_s=transaction_timeout_s,
            call_timeout_s=call_timeout_s,
        )
        self._checked = False
        job.add_sink(uid, self)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Writes one batch, unless Kafka has it already.

        Raises:
            InvalidInputError: The columns are not those of a Kafka sink, or the sink had another number of partitions.
            UnavailableError: Kafka did not answer; the batch must run again.
        """
        settings = self._settings
        _check_columns(df)
        if not self._checked:
            self._check_partitions()
            self._checked = True
        rows = df.select(*_selected(df, settings.topic)).repartition(settings.partitions, F.coalesce(F.col("key"), F.col("value")))
        done = rows.mapInArrow(_writer(settings, batch_id), _RESULT).collect()
        _log.debug(
            "wrote a batch to Kafka",
            sink=settings.identity,
            batch=batch_id,
            rows=sum(row["rows"] or 0 for row in done),
            skipped=sum(row["rows"] is None for row in done),
        )

    def last_batch(self) -> int:
        """Returns the last batch that Kafka has of this sink; -1 for none.

        Raises:
            UnavailableError: Kafka did not answer.
        """
        return max((marker.batch for marker in written_batches(self._settings)), default=-1)

    def _check_partitions(self) -> None:
        """Raises if Kafka has batches that were divided over another number of sink partitions."""
        for marker in written_batches(self._settings):
            if marker.partitions != self._settings.partitions:
                raise InvalidInputError(
                    f"the sink {self._settings.identity!r} has written with {marker.partitions} sink partitions, not {self._settings.partitions}",
                    field="KafkaSink(partitions=...)",
                    remedy=f"Set it to {marker.partitions}, or give the sink a new uid after a stop with a savepoint",
                )


def _check_columns(df: DataFrame) -> None:
    kinds: dict[str, DataType] = {field.name: field.dataType for field in df.schema.fields}
    if unknown := sorted(kinds.keys() - _COLUMNS.keys()):
        raise InvalidInputError(
            f"a Kafka message has no {', '.join(map(repr, unknown))}",
            field="KafkaSink",
            remedy=f"Select the columns {', '.join(_COLUMNS)}, e.g. selectExpr('user AS key', 'to_json(struct(*)) AS value')",
        )
    for name in ("key", "value"):
        if name in kinds and not isinstance(kinds[name], StringType | BinaryType):
            raise InvalidInputError(
                f"the column {name!r} is of type {kinds[name].simpleString()}, not {_COLUMNS[name]}", field="KafkaSink", remedy="Cast it"
            )
    if "value" not in kinds:
        raise InvalidInputError("there is no column 'value'", field="KafkaSink", remedy="Select it, e.g. to_json(struct(*)) AS value")


def _selected(df: DataFrame, topic: str) -> Iterator[Column]:
    """Yields the six columns of a message, in the order of `Message`."""
    present = set(df.columns)

    def column(name: str, kind: DataType | str) -> Column:
        found = F.col(name) if name in present else F.lit(None)
        return found.cast(kind).alias(name)

    yield F.coalesce(column("topic", "string"), F.lit(topic)).alias("topic")
    yield column("value", BinaryType())
    yield column("key", BinaryType())
    yield column("headers", _COLUMNS["headers"])
    yield column("partition", "int")
    stamp = F.unix_millis(F.col("timestamp")) if "timestamp" in present else F.lit(None).cast(LongType())
    yield stamp.alias("timestamp_ms")


def _writer(settings: SinkSettings, batch: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns the function that a task calls with the rows of its sink partition."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None  # noqa: S101  it is a task's
        partition = context.partitionId()
        messages = _messages(batches)
        first = next(messages, None)
        if first is None:
            return
        written = write_partition(settings, partition, batch, _again(first, messages))
        if written is None:
            for _ in messages:  # Spark counts a batch as read only if all rows were
                pass
        yield pa.RecordBatch.from_pydict({"partition": pa.array([partition], pa.int32()), "rows": pa.array([written], pa.int64())})

    return write


def _again(first: Message, rest: Iterator[Message]) -> Iterator[Message]:
    yield first
    yield from rest


def _messages(batches: Iterator[pa.RecordBatch]) -> Iterator[Message]:
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for topic, value, key, headers, partition, timestamp_ms in zip(*columns, strict=True):
            pairs = [(each["key"], each["value"]) for each in headers] if headers is not None else None
            yield Message(topic, value, key, pairs, partition, timestamp_ms)
