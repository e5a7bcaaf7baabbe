"""BroadcastStream and BroadcastConnectedStream: a small stream of which every slot of a keyed step gets every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.pipeline.exchange_plan import add_step
from statefulspark.pipeline.output_types import OutputType, output_struct
from statefulspark.pipeline.step_arguments import arrow_input
from statefulspark.pipeline.tagged_streams import TaggedStream, side_outputs_of
from statefulspark.pipeline.watermarks import InputTimes, step_watermarks
from statefulspark.process.api.broadcast_functions import KeyedBroadcastProcessFunction
from statefulspark.process.api.co_functions import KeyedCoProcessFunction, check_function
from statefulspark.process.api.functions import KeyedProcessFunction
from statefulspark.process.api.output_tag import OutputTag
from statefulspark.process.rows.reserved_columns import PART
from statefulspark.process.rows.step_spec import InputSpec, StepSpec
from statefulspark.process.runner.broadcast_states import check_descriptors
from statefulspark.state.api.descriptors import MapStateDescriptor
from statefulspark.state.api.names import check_uid

if TYPE_CHECKING:
    from statefulspark.pipeline.job import Job
    from statefulspark.pipeline.keyed_streams import KeyedStream

__all__ = ["BroadcastConnectedStream", "BroadcastStream"]


class BroadcastStream:
    """A stream of which every slot gets every row, and the broadcast states that its rows may change; made by ``Job.broadcast``.

    Attributes:
        input_stream: The streaming DataFrame.
        broadcast_state_descriptors: Descriptors of the broadcast states.

    Raises:
        InvalidInputError: The DataFrame cannot be broadcast, or a descriptor does not describe broadcast state; names the remedy.
    """

    def __init__(self, job: Job, input_stream: DataFrame | TaggedStream, broadcast_state_descriptors: Sequence[MapStateDescriptor]) -> None:
        self.job = job
        self.input_stream = _checked(input_stream)
        self.broadcast_state_descriptors = tuple(broadcast_state_descriptors)
        check_descriptors(self.broadcast_state_descriptors)


class BroadcastConnectedStream:
    """A keyed stream and a broadcast stream that are processed together; made by ``KeyedStream.connect``.

    Attributes:
        non_broadcast_stream: The keyed stream.
        broadcast_stream: The broadcast stream.
        broadcast_state_descriptors: Descriptors of its broadcast states.

    Raises:
        InvalidInputError: The streams cannot be connected; names the remedy.
    """

    def __init__(self, non_broadcast_stream: KeyedStream, broadcast_stream: BroadcastStream) -> None:
        if broadcast_stream.job is not non_broadcast_stream.job:
            raise InvalidInputError(
                "the broadcast stream is one of another job", field="connect", remedy="Connect a broadcast stream of this job"
            )
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = broadcast_stream.broadcast_state_descriptors

    @overload
    def process(
        self,
        func: KeyedBroadcastProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time: str | None = ...,
        watermark: str | int | None = ...,
        broadcast_event_time: str | None = ...,
        broadcast_watermark: str | int | None = ...,
        side_outputs: None = ...,
    ) -> DataFrame: ...

    @overload
    def process(
        self,
        func: KeyedBroadcastProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time: str | None = ...,
        watermark: str | int | None = ...,
        broadcast_event_time: str | None = ...,
        broadcast_watermark: str | int | None = ...,
        side_outputs: Sequence[OutputTag],
    ) -> TaggedStream: ...

    def process(
        self,
        func: KeyedBroadcastProcessFunction,
        output_type: OutputType,
        *,
        uid: str,
        event_time: str | None = None,
        watermark: str | int | None = None,
        broadcast_event_time: str | None = None,
        broadcast_watermark: str | int | None = None,
        side_outputs: Sequence[OutputTag] | None = None,
    ) -> DataFrame | TaggedStream:
        """Run ``func`` for each row of the keyed stream in the slot of its key, and for each row of the broadcast stream in every slot.

        The watermark of the step is the smaller one of both inputs; there is none until each input with event time has had a row. An input
        without event time does not count, so leave out ``broadcast_event_time`` for a stream that is silent for long.

        Args:
            func: the user's KeyedBroadcastProcessFunction; it is pickled with cloudpickle and opened once in each slot.
            output_type: the rows it emits, as DDL text, a StructType, or a type such as ``Types.ROW_NAMED(...)``.
            uid: stable name of this step; identifies its state permanently. 1 to 200 characters.
            event_time: timestamp column of the keyed stream that ``ctx.timestamp()`` and event-time timers go by.
            watermark: how far behind its greatest event time the watermark of the keyed stream stays: ``"1 hour"`` or milliseconds. It
                never passes that of the steps that the rows come from, which is the default; without such steps the default is 0.
            broadcast_event_time: timestamp column by which the rows of the broadcast stream in a batch are ordered.
            broadcast_watermark: how far behind its greatest event time the watermark of the broadcast stream stays.
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
                f"expected a KeyedBroadcastProcessFunction, got {type(func).__name__}",
                field="func",
                remedy="Derive it from KeyedBroadcastProcessFunction",
            )
        check_function(func, inputs=2, field="func", broadcast=True)
        check_uid(uid)
        job = self.non_broadcast_stream.job
        (df, keys), broadcast = self.non_broadcast_stream.keyed, self.broadcast_stream.input_stream
        times = InputTimes(
            broadcast, job.upstream(broadcast), broadcast_event_time, broadcast_watermark, "broadcast_event_time", "broadcast_watermark"
        )
        delays_ms, after = step_watermarks(uid, [InputTimes(df, job.upstream(df), event_time, watermark, "event_time", "watermark"), times])
        step = StepSpec(
            uid=uid,
            function=func,
            input_schema=arrow_input(df, job.time_zone),
            output_schema=to_arrow_schema(schema, timezone=job.time_zone),
            key_columns=keys,
            event_time=event_time,
            watermark_delay_ms=delays_ms[0],
            max_parallelism=job.max_parallelism,
            side_outputs=() if side_outputs is None else side_outputs_of(side_outputs, job.time_zone),
            second=InputSpec(arrow_input(broadcast, job.time_zone, "broadcast"), (), broadcast_event_time, delays_ms[1]),
            broadcast=self.broadcast_state_descriptors,
            after=after,
        )
        return add_step(job, step, [(df, keys)], schema, side_outputs, broadcast=broadcast)


def _checked(df: object) -> DataFrame:
    """Return a DataFrame that can be broadcast."""
    if isinstance(df, TaggedStream):
        raise InvalidInputError(
            f"the step {df.uid!r} has side outputs, and Spark would run it once for each step that reads one of them",
            field="broadcast",
            remedy="Write its outputs with job.outputs(), and read them in another job",
        )
    if not isinstance(df, DataFrame):
        raise InvalidInputError(
            f"expected a streaming DataFrame, got {type_name(type(df))}", field="broadcast", remedy="Read it with spark.readStream"
        )
    if not df.isStreaming:
        raise InvalidInputError(
            "the DataFrame is not a stream",
            field="broadcast",
            remedy="Read it with spark.readStream, or join it with the keyed stream in Spark",
        )
    if PART in df.columns:
        raise InvalidInputError(f"column {PART!r} has a reserved name", field="broadcast", remedy="Rename the column")
    return df
