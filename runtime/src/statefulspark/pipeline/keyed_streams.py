"""KeyedStream: a streaming DataFrame partitioned by key, and what can be made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema

from statefulspark.errors import InvalidInputError
from statefulspark.pipeline.broadcast_streams import BroadcastConnectedStream, BroadcastStream
from statefulspark.pipeline.connected_streams import ConnectedStreams
from statefulspark.pipeline.exchange_plan import Keyed, add_step
from statefulspark.pipeline.key_selectors import Key, keyed_by
from statefulspark.pipeline.keyed_transformations import KeyedTransformations
from statefulspark.pipeline.output_types import OutputType, aggregate_type, output_struct
from statefulspark.pipeline.step_arguments import arrow_input, check_column, idle_ms, value_columns
from statefulspark.pipeline.tagged_streams import TaggedStream, side_outputs_of
from statefulspark.pipeline.watermarks import InputTimes, step_watermarks
from statefulspark.pipeline.windowed_streams import KeyedInput, WindowedStream
from statefulspark.process.api.co_functions import StepFunction, check_function
from statefulspark.process.api.functions import KeyedProcessFunction
from statefulspark.process.api.output_tag import OutputTag
from statefulspark.process.batches.aggregates import Aggregate
from statefulspark.process.batches.functions import BatchKeyedProcessFunction
from statefulspark.process.batches.running_aggregates import RunningAggregates
from statefulspark.process.rows.reserved_columns import RESERVED
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.process.windows.assigners import CountSlidingWindowAssigner, CountTumblingWindowAssigner, WindowAssigner
from statefulspark.state.api.names import check_uid

if TYPE_CHECKING:
    from statefulspark.pipeline.job import Job

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
        func: KeyedProcessFunction | BatchKeyedProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time: str | None = ...,
        watermark: str | int | None = ...,
        watermark_by: str | Sequence[str] | None = ...,
        idle_after: str | int | None = ...,
        side_outputs: None = ...,
    ) -> DataFrame: ...

    @overload
    def process(
        self,
        func: KeyedProcessFunction | BatchKeyedProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time: str | None = ...,
        watermark: str | int | None = ...,
        watermark_by: str | Sequence[str] | None = ...,
        idle_after: str | int | None = ...,
        side_outputs: Sequence[OutputTag],
    ) -> TaggedStream: ...

    def process(
        self,
        func: KeyedProcessFunction | BatchKeyedProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time: str | None = None,
        watermark: str | int | None = None,
        watermark_by: str | Sequence[str] | None = None,
        idle_after: str | int | None = None,
        side_outputs: Sequence[OutputTag] | None = None,
    ) -> DataFrame | TaggedStream:
        """Run ``func`` for each row, with state and timers of the row's key; a batch function for many keys at once.

        Args:
            func: the user's KeyedProcessFunction or BatchKeyedProcessFunction; it is pickled with cloudpickle and opened once in each slot.
            output_type: the rows it emits, as DDL text, a StructType, or a type such as ``Types.ROW_NAMED(...)``.
            uid: stable name of this step; identifies its state permanently. 1 to 200 characters.
            event_time: timestamp column that ``ctx.timestamp()`` and event-time timers go by; without it only processing time is there.
            watermark: how far behind the greatest event time seen the watermark stays: ``"1 hour"`` or milliseconds. It never passes that of
                the steps that the rows come from. Defaults to the watermark of these steps; without any to 0, by which
                a row that is older than a row of an earlier batch is late, and a warning says so; ``"0 seconds"`` is silent.
            watermark_by: column, or several, of which each value has its own greatest event time; the watermark follows the smallest of these:
                ``"partition"`` if the rows have Kafka's, so that rows of a slow partition are not late. At most 1,024 values, of int, bigint or string.
            idle_after: without rows for so long, the step does not hold back the watermark of steps after it, and a value of ``watermark_by``
                not that of the step, until they have rows again: ``"1 minute"`` or milliseconds, longer than a batch takes. By default
                they always do.
            side_outputs: the tags of the outputs that the function emits to with ``yield tag, row``.

        Returns:
            A streaming DataFrame that any further Spark step or sink takes, another keyed step too. With ``side_outputs`` a
            TaggedStream, whose outputs `Job.outputs` writes.

        Raises:
            InvalidInputError: names the argument and the remedy; nothing has been started.
        """
        schema = output_struct(output_type, "output_type")
        if not isinstance(func, StepFunction):
            raise InvalidInputError(
                f"expected a KeyedProcessFunction, got {type(func).__name__}", field="func", remedy="Derive it from KeyedProcessFunction"
            )
        check_function(func, inputs=1, field="func")
        check_uid(uid)
        times = InputTimes(self._df, self._job.upstream(self._df), event_time, watermark, "event_time", "watermark")
        delays_ms, after = step_watermarks(uid, [times])
        step = StepSpec(
            uid=uid,
            function=func,
            input_schema=arrow_input(self._df, self._job.time_zone),
            output_schema=to_arrow_schema(schema, timezone=self._job.time_zone),
            key_columns=self._keys,
            event_time=event_time,
            watermark_delay_ms=delays_ms[0],
            max_parallelism=self._job.max_parallelism,
            side_outputs=() if side_outputs is None else side_outputs_of(side_outputs, self._job.time_zone),
            after=after,
            idle_after_ms=idle_ms(idle_after, has_event_time=event_time is not None),
            watermark_by=value_columns(watermark_by),
        )
        return add_step(self._job, step, [self.keyed], schema, side_outputs)

    def aggregate(self, *, uid: str, event_time: str | None = None, **aggregates: Aggregate) -> DataFrame:
        """Aggregate all rows of a key, and emit one row per key and batch: the key columns, then the aggregates so far.

        The aggregates are computed for many keys at once, without Python code per row. Types and nulls are as with Spark's own functions.

        Example::

            totals = job.key_by(orders, "user").aggregate(uid="totals", n=count(), spent=sum_("price"), latest=last("item"))

        Args:
            uid: stable name of the step.
            event_time: timestamp column in whose order the rows of a key are processed.
            aggregates: by name of the output column: `count`, `sum_`, `min_`, `max_`, `last`, `min_by` or `max_by` of `statefulspark`.

        Raises:
            InvalidInputError: A column does not exist or its type does not fit; names the output column.
        """
        schema, columns = self._input()
        function = RunningAggregates(aggregates, columns, self._keys)
        fields = {field.name: field for field in schema.fields}
        results = [
            T.StructField(name, aggregate_type(each, fields), nullable=function.output_schema.field(name).nullable)
            for name, each in aggregates.items()
        ]
        output = T.StructType([*(fields[name] for name in self._keys), *results])
        # Event time only orders the rows here: no timer waits for the watermark.
        return self.process(function, output, uid=uid, event_time=event_time, watermark="0 seconds")

    @property
    def job(self) -> Job:
        """The job that made the stream."""
        return self._job

    @property
    def keyed(self) -> Keyed:
        """The DataFrame, with the columns that key selectors computed, and the names of the key columns."""
        return self._df, self._keys

    @overload
    def connect(self, ds: KeyedStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, ds: KeyedStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Connect the stream with another keyed stream, so that one function gets the rows of both, with one state per key, or with a broadcast stream.

        Example::

            enriched = (
                job.key_by(clicks, "user")
                .connect(job.key_by(profiles, "id"))
                .process(Enrich(), "user STRING, page STRING, name STRING", uid="enrich", event_time1="at", event_time2="changed")
            )

        Args:
            ds: the second input: another keyed stream of the same job, whose key columns have the same types in the same order; names may differ.
                Or a stream that `Job.broadcast` has made.

        Raises:
            InvalidInputError: the streams cannot be connected; names the remedy.
        """
        return BroadcastConnectedStream(self, ds) if isinstance(ds, BroadcastStream) else ConnectedStreams(self, ds)

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
        # Event time only orders the rows here: no timer waits for the watermark.
        return self.process(function, schema, uid=uid, event_time=event_time, watermark="0 seconds")

    def _input(self) -> tuple[T.StructType, pa.Schema]:
        # Without metadata: Spark would take the delay of an earlier withWatermark for a watermark of the output.
        schema = T.StructType([T.StructField(field.name, field.dataType, field.nullable) for field in self._df.schema.fields])
        return schema, to_arrow_schema(schema, timezone=self._job.time_zone)

    def _visible(self, df: DataFrame) -> DataFrame:
        return df.drop(*self._computed_keys)


def _check_keys(df: DataFrame, keys: tuple[str, ...]) -> None:
    if not keys:
        raise InvalidInputError("no key column", field="key_by", remedy="Pass at least one column, e.g. key_by(df, 'user')")
    if not df.isStreaming:
        raise InvalidInputError("the DataFrame is not a stream", field="key_by", remedy="Read it with spark.readStream")
    for name in keys:
        check_column(df, name, "key_by")
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
