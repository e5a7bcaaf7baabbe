"""ConnectedStreams: two keyed streams with one function, one state per key and one timer service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from statefulspark.errors import InvalidInputError
from statefulspark.pipeline.exchange_plan import add_step
from statefulspark.pipeline.output_types import OutputType, output_struct
from statefulspark.pipeline.step_arguments import arrow_input, idle_ms, value_columns
from statefulspark.pipeline.tagged_streams import TaggedStream, side_outputs_of
from statefulspark.pipeline.watermarks import InputTimes, step_watermarks
from statefulspark.process.adapters.co_function_adapters import CoFlatMapAdapter, CoMapAdapter
from statefulspark.process.api.broadcast_functions import KeyedBroadcastProcessFunction
from statefulspark.process.api.co_functions import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction, check_function
from statefulspark.process.api.functions import KeyedProcessFunction
from statefulspark.process.api.output_tag import OutputTag
from statefulspark.process.rows.step_spec import InputSpec, StepSpec
from statefulspark.state.api.names import check_uid

if TYPE_CHECKING:
    from statefulspark.pipeline.keyed_streams import KeyedStream

__all__ = ["ConnectedStreams"]


class ConnectedStreams:
    """Two keyed streams that are processed together; made by ``KeyedStream.connect``.

    Attributes:
        stream1: The first input.
        stream2: The second input.

    Raises:
        InvalidInputError: The streams cannot be connected; names the remedy.
    """

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream) -> None:
        _check_streams(stream1, stream2)
        self.stream1 = stream1
        self.stream2 = stream2

    @overload
    def process(
        self,
        func: KeyedCoProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time1: str | None = ...,
        event_time2: str | None = ...,
        watermark1: str | int | None = ...,
        watermark2: str | int | None = ...,
        watermark_by1: str | Sequence[str] | None = ...,
        watermark_by2: str | Sequence[str] | None = ...,
        idle_after: str | int | None = ...,
        side_outputs: None = ...,
    ) -> DataFrame: ...

    @overload
    def process(
        self,
        func: KeyedCoProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time1: str | None = ...,
        event_time2: str | None = ...,
        watermark1: str | int | None = ...,
        watermark2: str | int | None = ...,
        watermark_by1: str | Sequence[str] | None = ...,
        watermark_by2: str | Sequence[str] | None = ...,
        idle_after: str | int | None = ...,
        side_outputs: Sequence[OutputTag],
    ) -> TaggedStream: ...

    def process(  # noqa: PLR0913  the arguments of two inputs, by name
        self,
        func: KeyedCoProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time1: str | None = None,
        event_time2: str | None = None,
        watermark1: str | int | None = None,
        watermark2: str | int | None = None,
        watermark_by1: str | Sequence[str] | None = None,
        watermark_by2: str | Sequence[str] | None = None,
        idle_after: str | int | None = None,
        side_outputs: Sequence[OutputTag] | None = None,
    ) -> DataFrame | TaggedStream:
        """Run ``func`` for each row of both streams, with state and timers of the row's key.

        The watermark of the step is the smaller one of both inputs; there is none until each input with event time has had a row. An input
        without event time does not count.

        Args:
            func: the user's KeyedCoProcessFunction; it is pickled with cloudpickle and opened once in each slot.
            output_type: the rows it emits, as DDL text, a StructType, or a type such as ``Types.ROW_NAMED(...)``.
            uid: stable name of this step; identifies its state permanently. 1 to 200 characters.
            event_time1: timestamp column of the first input that ``ctx.timestamp()`` and event-time timers go by.
            event_time2: the same of the second input; if both are given, of the same type.
            watermark1: how far behind its greatest event time the watermark of the first input stays: ``"1 hour"`` or milliseconds. It
                never passes that of the steps that the rows come from, which is the default; without such steps the default is 0.
            watermark2: the same of the second input.
            watermark_by1: column, or several, of the first input, of which each value has its own greatest event time; its watermark follows the
                smallest of these: ``"partition"`` if the rows have Kafka's. At most 1,024 values, of int, bigint or string.
            watermark_by2: the same of the second input.
            idle_after: an input, or a value of ``watermark_by1`` or ``watermark_by2``, without rows for so long does not hold the watermark back any more until it has rows again: ``"1 minute"`` or
                milliseconds, longer than a batch takes; by default it always does. Rows that it has then are late if they are older than the watermark.
            side_outputs: the tags of the outputs that the function emits to with ``yield tag, row``.

        Returns:
            A streaming DataFrame that any further Spark step or sink takes, another keyed step too. With ``side_outputs`` a
            TaggedStream, whose outputs `Job.outputs` writes.

        Raises:
            InvalidInputError: names the argument and the remedy; nothing has been started.
        """
        schema = output_struct(output_type, "output_type")
        if not isinstance(func, KeyedProcessFunction | KeyedCoProcessFunction | KeyedBroadcastProcessFunction):
            raise InvalidInputError(
                f"expected a KeyedCoProcessFunction, got {type(func).__name__}",
                field="func",
                remedy="Derive it from KeyedCoProcessFunction",
            )
        check_function(func, inputs=2, field="func")
        check_uid(uid)
        job = self.stream1.job
        inputs = [self.stream1.keyed, self.stream2.keyed]
        (first, keys), (second, second_keys) = inputs
        delays_ms, after = step_watermarks(
            uid,
            [
                InputTimes(first, job.upstream(first), event_time1, watermark1, "event_time1", "watermark1"),
                InputTimes(second, job.upstream(second), event_time2, watermark2, "event_time2", "watermark2"),
            ],
        )
        if event_time1 is not None and event_time2 is not None:
            kinds = [df.schema[name].dataType.simpleString() for (df, _), name in zip(inputs, (event_time1, event_time2), strict=True)]
            if kinds[0] != kinds[1]:
                raise InvalidInputError(
                    f"column {event_time2!r} is {kinds[1]}, and event_time1 is {kinds[0]}", field="event_time2", remedy="Cast one of them"
                )
        step = StepSpec(
            uid=uid,
            function=func,
            input_schema=arrow_input(first, job.time_zone),
            output_schema=to_arrow_schema(schema, timezone=job.time_zone),
            key_columns=keys,
            event_time=event_time1,
            watermark_delay_ms=delays_ms[0],
            max_parallelism=job.max_parallelism,
            side_outputs=() if side_outputs is None else side_outputs_of(side_outputs, job.time_zone),
            second=InputSpec(
                arrow_input(second, job.time_zone, "connect"),
                second_keys,
                event_time2,
                delays_ms[1],
                value_columns(watermark_by2, "watermark_by2"),
            ),
            after=after,
            idle_after_ms=idle_ms(idle_after, has_event_time=event_time1 is not None or event_time2 is not None),
            watermark_by=value_columns(watermark_by1, "watermark_by1"),
        )
        return add_step(job, step, inputs, schema, side_outputs)

    def map(
        self, func: CoMapFunction, output_type: OutputType, *, uid: str, event_time1: str | None = None, event_time2: str | None = None
    ) -> DataFrame:
        """Emit one row for each row of either stream.

        Args:
            func: an instance of CoMapFunction, which may use keyed state.
            output_type: the columns of the output, as in `process`.
            uid: stable name of the step.
            event_time1: timestamp column of the first input by which the rows of a key are ordered.
            event_time2: the same of the second input.

        Raises:
            InvalidInputError: names the argument and the remedy; nothing has been started.
        """
        return self._ordered(CoMapAdapter(func), output_type, uid, event_time1, event_time2)

    def flat_map(
        self, func: CoFlatMapFunction, output_type: OutputType, *, uid: str, event_time1: str | None = None, event_time2: str | None = None
    ) -> DataFrame:
        """Emit any number of rows for each row of either stream.

        Args:
            func: an instance of CoFlatMapFunction, which may use keyed state.
            output_type: the columns of the output, as in `process`.
            uid: stable name of the step.
            event_time1: timestamp column of the first input by which the rows of a key are ordered.
            event_time2: the same of the second input.

        Raises:
            InvalidInputError: names the argument and the remedy; nothing has been started.
        """
        return self._ordered(CoFlatMapAdapter(func), output_type, uid, event_time1, event_time2)

    def _ordered(
        self, func: KeyedCoProcessFunction, output_type: OutputType, uid: str, event_time1: str | None, event_time2: str | None
    ) -> DataFrame:
        # Event time only orders the rows here: no timer waits for the watermark.
        delay = "0 seconds"
        return self.process(
            func, output_type, uid=uid, event_time1=event_time1, event_time2=event_time2, watermark1=delay, watermark2=delay
        )


def _check_streams(first: KeyedStream, second: object) -> None:
    """Raise unless a second stream can be connected with the first: keys are compared by position, and equal keys must have equal state."""
    if not isinstance(second, type(first)):
        raise InvalidInputError(
            f"expected a keyed stream, got {type(second).__name__}",
            field="connect",
            remedy="Key it first: job.key_by(df, 'user'), or broadcast it: job.broadcast(df, descriptor)",
        )
    if second is first or second.job is not first.job:
        found = "the stream itself" if second is first else "a stream of another job"
        raise InvalidInputError(f"the second input is {found}", field="connect", remedy="Connect another keyed stream of this job")
    (df, keys), (other_df, other_keys) = first.keyed, second.keyed
    if len(keys) != len(other_keys):
        raise InvalidInputError(
            f"the key of the first input is ({', '.join(keys)}), and that of the second ({', '.join(other_keys)})",
            field="connect",
            remedy="Key both streams by the same number of columns",
        )
    for name, other_name in zip(keys, other_keys, strict=True):
        kind, other_kind = (each.schema[column].dataType.simpleString() for each, column in ((df, name), (other_df, other_name)))
        if kind != other_kind:
            raise InvalidInputError(
                f"the key column {name!r} of the first input is {kind}, and {other_name!r} of the second is {other_kind}",
                field="connect",
                remedy="Cast one of them, so that equal keys have equal state",
            )
