"""WindowedTransformations: the methods of windowed streams, in jobs and in tests. PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.process.api.output_tag import OutputTag
from statefulspark.process.windows.assigners import Length, WindowAssigner, milliseconds
from statefulspark.process.windows.evicted_contents import AggregatedRows, EvictedContents, ReducedRows
from statefulspark.process.windows.evictors import Evictor
from statefulspark.process.windows.functions import ProcessWindowFunction, WindowFunction
from statefulspark.process.windows.triggers import Trigger
from statefulspark.process.windows.window_contents import AggregatedContents, ListContents, ReducedContents, WindowContents
from statefulspark.process.windows.window_operator import WindowOperator
from statefulspark.process.windows.window_results import WindowResults
from statefulspark.process.windows.windowing import Windowing
from statefulspark.state.api.functions import AggregateFunction, ReduceFunction, as_reduce_function
from statefulspark.state.api.operator_state import CheckpointedFunction, ListCheckpointed
from statefulspark.state.types.base import TypeInformation
from statefulspark.state.types.types import Types

__all__ = ["StepTimes", "WindowedTransformations"]

Result = TypeVar("Result")
AnyWindowFunction = WindowFunction | ProcessWindowFunction


@dataclass(frozen=True)
class StepTimes:
    """The arguments that name a window step and its times; see `KeyedStream.process`."""

    uid: str
    event_time: str | None
    watermark: str | int | None
    watermark_by: str | Sequence[str] | None
    idle_after: str | int | None
    side_outputs: Sequence[OutputTag] | None


class WindowedTransformations(ABC, Generic[Result]):
    """Transformations of a windowed keyed stream.

    ``trigger``, ``evictor``, ``allowed_lateness`` and ``side_output_late_data`` return a changed copy. ``reduce``, ``aggregate``, ``apply`` and
    ``process`` make the step. They take these arguments by name:

    * ``uid``: stable name of the step, by which its state is found, 1 to 200 characters.
    * ``event_time``: the timestamp column. Event-time windows need it.
    * ``watermark``: how far behind the greatest event time the watermark stays: ``"1 hour"`` or milliseconds; see `KeyedStream.process`.
    * ``watermark_by``: column, or several, of which each value has its own greatest event time, such as ``"partition"``; see there too.
    * ``idle_after``: time without rows after which the step does not hold back the watermark of steps after it, and a value of ``watermark_by``
      not that of the step; see there too.
    * ``side_outputs``: tags to which a window function emits, beside that of late rows.

    Every method raises InvalidInputError, which names the argument and the remedy, before anything is started.

    Args:
        assigner: Gives each row its windows.
    """

    def __init__(self, assigner: WindowAssigner) -> None:
        given: object = assigner
        if not isinstance(given, WindowAssigner):
            raise InvalidInputError(
                f"expected a WindowAssigner, got {type(given).__name__}",
                field="window",
                remedy="Pass one, for example TumblingEventTimeWindows.of(Time.minutes(1))",
            )
        self._windowing = Windowing(given)

    @abstractmethod
    def _made(self, operator: WindowOperator, output_type: Any, times: StepTimes) -> Result:
        """Make the step. Without ``output_type`` it has the columns of the stream."""

    @abstractmethod
    def _columns(self) -> pa.Schema:
        """The columns of the stream, as slots get them."""

    @abstractmethod
    def _late_row(self) -> Callable[[Any], Any]:
        """Return a function that makes the row for the side output of a late one."""

    def trigger(self, trigger: Trigger) -> Self:
        """Let windows fire when ``trigger`` says so, instead of the assigner's own trigger."""
        if not isinstance(trigger, Trigger):
            raise InvalidInputError(
                f"expected a Trigger, got {type(trigger).__name__}", field="trigger", remedy="Pass one, or leave it out"
            )
        return self._with(given_trigger=trigger)

    def evictor(self, evictor: Evictor) -> Self:
        """Let ``evictor`` remove rows from a window when it fires. Windows then keep all rows, also for ``reduce`` and ``aggregate``."""
        if not isinstance(evictor, Evictor):
            raise InvalidInputError(
                f"expected an Evictor, got {type(evictor).__name__}", field="evictor", remedy="Pass one, or leave it out"
            )
        return self._with(evictor=evictor)

    def allowed_lateness(self, time_ms: int | Length) -> Self:
        """Keep windows for ``time_ms`` milliseconds after the watermark has passed their end: a late row makes its window fire again."""
        late_ms = time_ms if type(time_ms) is int else milliseconds(time_ms, "allowed lateness") if not isinstance(time_ms, int) else -1
        if late_ms < 0:
            raise InvalidInputError(f"{time_ms!r} is not a time", field="allowed_lateness", remedy="Give milliseconds, at least 0")
        return self._with(allowed_lateness_ms=late_ms)

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Emit rows that are too late for their windows to a side output, with the columns of the stream. Without it they are dropped."""
        if not isinstance(output_tag, OutputTag):
            raise InvalidInputError(
                f"expected an OutputTag, got {type(output_tag).__name__}", field="side_output_late_data", remedy="Pass an OutputTag"
            )
        return self._with(late_tag=output_tag)

    def reduce(
        self,
        reduce_function: ReduceFunction[Any] | Callable[[Any, Any], Any],
        window_function: AnyWindowFunction | None = None,
        output_type: Any = None,
        *,
        uid: str,
        event_time: str | None = None,
        watermark: str | int | None = None,
        watermark_by: str | Sequence[str] | None = None,
        idle_after: str | int | None = None,
        side_outputs: Sequence[OutputTag] | None = None,
    ) -> Result:
        """Combine the rows of each window as they come, and emit the combination.

        Example::

            longest = (
                job.key_by(calls, "user")
                .window(TumblingEventTimeWindows.of(Time.hours(1)))
                .reduce(lambda a, b: b if b.seconds > a.seconds else a, uid="longest", event_time="at", watermark="1 minute")
            )

        Args:
            reduce_function: Combines two rows into one of the same columns.
            window_function: Makes the output of the combined row; None to emit it as it is.
            output_type: The output's columns; only with ``window_function``.
            uid: See the class.
            event_time: See the class.
            watermark: See the class.
            watermark_by: See the class.
            idle_after: See the class.
            side_outputs: See the class.
        """
        if (window_function is None) != (output_type is None):
            raise InvalidInputError(
                "window_function and output_type belong together", field="output_type", remedy="Pass both of them, or neither"
            )
        function, schema, evictor = as_reduce_function(reduce_function, "reduce_function"), self._columns(), self._windowing.evictor
        contents: WindowContents = ReducedContents(function, schema)
        if evictor is not None:
            contents = EvictedContents(schema, evictor, ReducedRows(function, schema))
        _refuse_operator_state(function)
        times = StepTimes(uid, event_time, watermark, watermark_by, idle_after, side_outputs)
        return self._step(contents, window_function, output_type, times)

    def aggregate(  # noqa: PLR0913  by name
        self,
        aggregate_function: AggregateFunction[Any, Any, Any],
        window_function: AnyWindowFunction | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: Any = None,
        *,
        uid: str,
        event_time: str | None = None,
        watermark: str | int | None = None,
        watermark_by: str | Sequence[str] | None = None,
        idle_after: str | int | None = None,
        side_outputs: Sequence[OutputTag] | None = None,
    ) -> Result:
        """Aggregate the rows of each window as they come, and emit the result.

        Args:
            aggregate_function: Makes the accumulator and the result.
            window_function: Makes the output of the result; None to emit it as it is.
            accumulator_type: How the accumulator is stored; pickled by default.
            output_type: The output's columns.
            uid: See the class.
            event_time: See the class.
            watermark: See the class.
            watermark_by: See the class.
            idle_after: See the class.
            side_outputs: See the class.
        """
        if not isinstance(aggregate_function, AggregateFunction):
            raise InvalidInputError(
                f"expected an AggregateFunction, got {type(aggregate_function).__name__}",
                field="aggregate_function",
                remedy="Pass an instance of an AggregateFunction",
            )
        _refuse_operator_state(aggregate_function)
        evictor = self._windowing.evictor
        contents: WindowContents = AggregatedContents(aggregate_function, accumulator_type or Types.PICKLED_BYTE_ARRAY())
        if evictor is not None:
            contents = EvictedContents(self._columns(), evictor, AggregatedRows(aggregate_function))
        times = StepTimes(uid, event_time, watermark, watermark_by, idle_after, side_outputs)
        return self._step(contents, window_function, _given(output_type), times)

    def apply(
        self,
        window_function: WindowFunction,
        output_type: Any,
        *,
        uid: str,
        event_time: str | None = None,
        watermark: str | int | None = None,
        watermark_by: str | Sequence[str] | None = None,
        idle_after: str | int | None = None,
        side_outputs: Sequence[OutputTag] | None = None,
    ) -> Result:
        """Keep all rows of each window, and emit what ``window_function`` makes of them. Arguments as in `process`."""
        if not isinstance(window_function, WindowFunction):
            raise _wrong_function("WindowFunction", window_function)
        return self._of_rows(window_function, output_type, StepTimes(uid, event_time, watermark, watermark_by, idle_after, side_outputs))

    def process(
        self,
        process_window_function: ProcessWindowFunction,
        output_type: Any,
        *,
        uid: str,
        event_time: str | None = None,
        watermark: str | int | None = None,
        watermark_by: str | Sequence[str] | None = None,
        idle_after: str | int | None = None,
        side_outputs: Sequence[OutputTag] | None = None,
    ) -> Result:
        """Keep all rows of each window, and emit what ``process_window_function`` makes of them.

        Args:
            process_window_function: Gets the key, a context and the rows.
            output_type: The output's columns: DDL text, a StructType, or a type such as ``Types.ROW_NAMED(...)``.
            uid: See the class.
            event_time: See the class.
            watermark: See the class.
            watermark_by: See the class.
            idle_after: See the class.
            side_outputs: See the class.
        """
        if not isinstance(process_window_function, ProcessWindowFunction):
            raise _wrong_function("ProcessWindowFunction", process_window_function)
        return self._of_rows(
            process_window_function, output_type, StepTimes(uid, event_time, watermark, watermark_by, idle_after, side_outputs)
        )

    def _of_rows(self, function: AnyWindowFunction, output_type: Any, times: StepTimes) -> Result:
        schema, evictor = self._columns(), self._windowing.evictor
        contents = ListContents(schema) if evictor is None else EvictedContents(schema, evictor, None)
        return self._step(contents, function, _given(output_type), times)

    def _step(self, contents: WindowContents, function: AnyWindowFunction | None, output_type: Any, times: StepTimes) -> Result:
        if function is not None and not isinstance(function, WindowFunction | ProcessWindowFunction):
            raise _wrong_function("WindowFunction or ProcessWindowFunction", function)
        windowing = self._windowing
        for part in (function, windowing.assigner, windowing.trigger, windowing.evictor):
            _refuse_operator_state(part)
        windowing.check(times.event_time, keeps_rows=type(contents) is ListContents)
        if windowing.late_tag is not None and windowing.late_tag not in (times.side_outputs or ()):
            times = replace(times, side_outputs=[*(times.side_outputs or ()), windowing.late_tag])
        return self._made(WindowOperator(windowing, contents, WindowResults(function), self._late_row()), output_type, times)

    def _with(self, **changes: Any) -> Self:
        changed = object.__new__(type(self))
        changed.__dict__ = {**self.__dict__, "_windowing": replace(self._windowing, **changes)}
        return changed


def _refuse_operator_state(part: object) -> None:
    if isinstance(part, CheckpointedFunction | ListCheckpointed):
        raise InvalidInputError(
            f"{type(part).__name__} has operator state, which functions of windows cannot have",
            field="window",
            remedy="Keep it in context.global_state(), or use KeyedStream.process",
        )


def _given(output_type: Any) -> Any:
    if output_type is None:
        raise InvalidInputError("is missing", field="output_type", remedy="Name the columns, for example 'user STRING, clicks BIGINT'")
    return output_type


def _wrong_function(wanted: str, given: object) -> InvalidInputError:
    found = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
    return InvalidInputError(f"expected a {wanted}, got {found}", field="window_function", remedy=f"Pass an instance of a {wanted}")
