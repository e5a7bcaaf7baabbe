"""Translates ``key_by(...).process(...)`` into ordinary Spark operations around the exchange.

source → key hash, slot → (union tick source) → repartitionById(slot) → mapInArrow(exchange) → the user's further steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema

from statefulspark.checkpoint.formats.pipeline import KeyColumn, StepKey
from statefulspark.config.durations import parse_duration
from statefulspark.errors import InvalidInputError
from statefulspark.exchange.config import ExchangeConfig
from statefulspark.exchange.task import exchange_partition, spare_collector
from statefulspark.keygroups import slot_expression
from statefulspark.pipeline.column_names import quoted
from statefulspark.pipeline.key_selectors import Key, keyed_by
from statefulspark.pipeline.keyed_transformations import KeyedTransformations
from statefulspark.pipeline.output_types import OutputType, output_struct
from statefulspark.pipeline.tagged_streams import TaggedStream, side_outputs_of, tagged_struct
from statefulspark.pipeline.tick_source import FORMAT
from statefulspark.pipeline.windowed_streams import KeyedInput, WindowedStream
from statefulspark.process.function_runner import StepSpec
from statefulspark.process.functions import KeyedProcessFunction
from statefulspark.process.output_tag import OutputTag
from statefulspark.process.reserved_columns import KEY_HASH, RESERVED, SLOT, SOURCE
from statefulspark.process.windows.assigners import CountSlidingWindowAssigner, CountTumblingWindowAssigner, WindowAssigner
from statefulspark.rpc.messages.batches import PartitionRun

if TYPE_CHECKING:
    from statefulspark.pipeline.job import Job

_BATCH_ID = "streaming.sql.batchId"
_EXECUTION_ID = "spark.sql.execution.id"
_HASHABLE = (
    T.StringType,
    T.BinaryType,
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DecimalType,
)
_EVENT_TIMES = (T.TimestampType, T.TimestampNTZType)


class KeyedStream(KeyedTransformations):
    """A streaming DataFrame partitioned by key; made by ``Job.key_by``."""

    def __init__(self, job: Job, df: DataFrame | TaggedStream, keys: tuple[Key, ...]) -> None:
        if isinstance(df, TaggedStream):
            raise InvalidInputError(
                f"the step {df.uid!r} has side outputs, and Spark would run it once for each step that reads one of them",
                field="key_by",
                remedy="Write its outputs with job.outputs(), and read them in another job",
            )
        self._job = job
        self._df, self._keys, self._computed_keys = keyed_by(df, keys)
        _check_keys(self._df, self._keys)

    @overload
    def process(
        self,
        func: KeyedProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time: str | None = ...,
        watermark: str | int = ...,
        side_outputs: None = ...,
    ) -> DataFrame: ...

    @overload
    def process(
        self,
        func: KeyedProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time: str | None = ...,
        watermark: str | int = ...,
        side_outputs: Sequence[OutputTag],
    ) -> TaggedStream: ...

    def process(
        self,
        func: KeyedProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time: str | None = None,
        watermark: str | int = 0,
        side_outputs: Sequence[OutputTag] | None = None,
    ) -> DataFrame | TaggedStream:
        """Run ``func`` for each row, with state and timers of the row's key.

        Args:
            func: the user's KeyedProcessFunction; it is pickled with cloudpickle and opened once in each slot.
            output_type: the rows it emits, as DDL text, a StructType, or a type such as ``Types.ROW_NAMED(...)``.
            uid: stable name of this step; identifies its state permanently. 1 to 200 characters.
            event_time: timestamp column that ``ctx.timestamp()`` and event-time timers go by; without it only processing time is there.
            watermark: how far behind the greatest event time seen the watermark stays: ``"1 hour"`` or milliseconds.
            side_outputs: the tags of the outputs that the function emits to with ``yield tag, row``.

        Returns:
            A streaming DataFrame that any further Spark step or sink takes, another keyed step too. With ``side_outputs`` a
            TaggedStream, whose outputs `Job.outputs` writes.

        Raises:
            InvalidInputError: names the argument and the remedy; nothing has been started.
        """
        schema = output_struct(output_type, "output_type")
        if not isinstance(func, KeyedProcessFunction):
            raise InvalidInputError(
                f"expected a KeyedProcessFunction, got {type(func).__name__}", field="func", remedy="Derive it from KeyedProcessFunction"
            )
        if not uid or len(uid) > 200:
            raise InvalidInputError("must have 1 to 200 characters", field="uid", remedy="Give the step a short stable name")
        delay_ms = watermark_delay_ms(watermark)
        if event_time is not None:
            _check_event_time(self._df, event_time)
        step = StepSpec(
            uid=uid,
            function=func,
            input_schema=to_arrow_schema(self._df.schema, timezone=self._job.time_zone),
            output_schema=to_arrow_schema(schema, timezone=self._job.time_zone),
            key_columns=self._keys,
            event_time=event_time,
            watermark_delay_ms=delay_ms,
            max_parallelism=self._job.max_parallelism,
            side_outputs=() if side_outputs is None else side_outputs_of(side_outputs, self._job.time_zone),
        )
        columns = tuple(KeyColumn(name=name, type=self._df.schema[name].dataType.simpleString()) for name in self._keys)
        key = StepKey(uid=uid, hashing=self._job.hashing(uid), columns=columns)
        self._job.add_step(step, key)
        if side_outputs is None:
            return _exchange(self._job, self._df, key, schema)
        stream = TaggedStream(uid, _exchange(self._job, self._df, key, tagged_struct(schema, side_outputs)))
        self._job.add_tagged_stream(stream)
        return stream

    def window(self, window_assigner: WindowAssigner) -> WindowedStream:
        """Cut the stream into windows, whose rows are combined, aggregated or processed together.

        Example::

            visits = (
                job.key_by(clicks, "user")
                .window(EventTimeSessionWindows.with_gap(Time.minutes(30)))
                .process(CountClicks(), "user STRING, clicks BIGINT", uid="visits", event_time="at", watermark="5 minutes")
            )

        Args:
            window_assigner: gives each row its windows, for example ``TumblingEventTimeWindows.of(Time.minutes(1))``.
        """
        schema, columns = self._input()
        return WindowedStream(KeyedInput(self.process, self._job.add_tagged_stream, schema, columns, self._computed_keys), window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Cut the stream into windows of ``size`` rows of a key, of which one starts every ``slide`` rows; by default every ``size``.

        Raises:
            InvalidInputError: a number is out of bounds.
        """
        return self.window(CountSlidingWindowAssigner(size, slide) if slide else CountTumblingWindowAssigner(size))

    def _step(self, function: KeyedProcessFunction, schema: T.StructType, uid: str, event_time: str | None) -> DataFrame:
        return self.process(function, schema, uid=uid, event_time=event_time)

    def _input(self) -> tuple[T.StructType, pa.Schema]:
        # Without metadata: Spark would take the delay of an earlier withWatermark for a watermark of the output.
        schema = T.StructType([T.StructField(field.name, field.dataType, field.nullable) for field in self._df.schema.fields])
        return schema, to_arrow_schema(schema, timezone=self._job.time_zone)

    def _visible(self, df: DataFrame) -> DataFrame:
        return df.drop(*self._computed_keys)


def watermark_delay_ms(watermark: str | int) -> int:
    """The delay in milliseconds.

    Raises:
        InvalidInputError: it is no duration.
    """
    remedy = "Give a duration such as '1 hour', or milliseconds"
    if isinstance(watermark, bool) or not isinstance(watermark, str | int):
        raise InvalidInputError(f"expected a str or an int, got {type(watermark).__name__}", field="watermark", remedy=remedy)
    if isinstance(watermark, str):
        try:
            return parse_duration(watermark)
        except InvalidInputError as error:
            raise InvalidInputError(f"{watermark!r} is {error.message}", field="watermark", remedy=remedy) from error
    if watermark < 0:
        raise InvalidInputError("must not be negative", field="watermark", remedy=remedy)
    return watermark


def _check_keys(df: DataFrame, keys: tuple[str, ...]) -> None:
    if not keys:
        raise InvalidInputError("no key column", field="key_by", remedy="Pass at least one column, e.g. key_by(df, 'user')")
    if not df.isStreaming:
        raise InvalidInputError("the DataFrame is not a stream", field="key_by", remedy="Read it with spark.readStream")
    for name in keys:
        _column(df, name, "key_by")
        kind = df.schema[name].dataType
        if not isinstance(kind, _HASHABLE) or (
            isinstance(kind, T.StringType) and getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY"
        ):
            raise InvalidInputError(
                f"column {name!r} of type {kind.simpleString()} cannot be a key: equal values can have different binary representations",
                field="key_by",
                remedy="Use a string, binary, boolean, integer, decimal, date or timestamp column, for example by casting to string",
            )
    reserved = [name for name in df.columns if name in RESERVED]
    if reserved:
        raise InvalidInputError(f"column {reserved[0]!r} has a reserved name", field="key_by", remedy="Rename the column")


def _check_event_time(df: DataFrame, name: str) -> None:
    _column(df, name, "event_time")
    kind = df.schema[name].dataType
    if not isinstance(kind, _EVENT_TIMES):
        raise InvalidInputError(
            f"column {name!r} is {kind.simpleString()}, not a timestamp", field="event_time", remedy=f"Cast it: to_timestamp({name})"
        )


def _column(df: DataFrame, name: str, field: str) -> None:
    if name not in df.columns:
        raise InvalidInputError(
            f"column {name!r} does not exist; the columns are {', '.join(df.columns)}", field=field, remedy="Correct the name"
        )


def _exchange(job: Job, df: DataFrame, key: StepKey, schema: T.StructType) -> DataFrame:
    """The Spark plan of one keyed step."""
    keys, uid = tuple(column.name for column in key.columns), key.uid
    columns = [F.col(quoted(name)) for name in df.columns]
    key_columns = [F.col(quoted(name)) for name in keys]
    hashed = [F.col(quoted(name)).cast(kind) for name, kind in key.hashed]
    null_key = F.lit(False)
    for column in key_columns:
        null_key = null_key | column.isNull()
    message = (
        f"InvalidInputError: key_by: a row of uid '{uid}' has a null key in {', '.join(keys)}. "
        f"Filter such rows before key_by, for example df.where('{keys[0]} is not null')"
    )
    key_hash = F.when(null_key, F.raise_error(F.lit(message)).cast("bigint")).otherwise(F.xxhash64(*hashed))
    parallelism, groups = job.parallelism, job.max_parallelism
    rows = df.select(key_hash.alias(KEY_HASH), F.spark_partition_id().alias(SOURCE), *columns)
    rows = rows.withColumn(SLOT, F.expr(slot_expression(KEY_HASH, parallelism, groups)))
    ticks = job.spark.readStream.format(FORMAT).option("uid", uid).load()
    ticks = ticks.select(F.explode(F.sequence(F.lit(0), F.lit(parallelism - 1))).alias(SLOT))
    ticks = ticks.select(
        F.lit(None).cast("bigint").alias(KEY_HASH),
        F.col(SLOT).alias(SOURCE),
        *[F.lit(None).cast(field.dataType).alias(field.name) for field in df.schema.fields],
        F.col(SLOT),
    )
    both = rows.union(ticks).repartitionById(parallelism, F.col(SLOT)).drop(SLOT)
    config = ExchangeConfig(coordinator=job.endpoint, uid=uid, max_parallelism=groups, parallelism=parallelism)
    return both.mapInArrow(exchange_function(config), schema)


def exchange_function(config: ExchangeConfig) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs on each partition of a keyed step."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context: Any = TaskContext.get()
        batch_id = context.getLocalProperty(_BATCH_ID) if context is not None else None
        if batch_id is None:
            raise InvalidInputError(
                "a keyed step ran outside its streaming query", field=config.uid, remedy="Start the job with `statefulspark run`"
            )
        spare_collector()
        task = PartitionRun(str(context.getLocalProperty(_EXECUTION_ID)), context.partitionId(), context.taskAttemptId())
        return exchange_partition(config, int(batch_id), task, batches)

    return run
