"""KeyedProcessHarness: runs one keyed function in a unit test, without Spark, on the real function runner and state backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from statefulspark.process.adapters.function_adapters import AnyKeyedFunction, adapted
from statefulspark.process.api.output_tag import OutputTag
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.testing.process_harness import HarnessSnapshot, ProcessHarness, stamped
from statefulspark.testing.schemas import Schema, arrow_schema, side_outputs_of

__all__ = ["HarnessSnapshot", "KeyedProcessHarness"]


class KeyedProcessHarness(ProcessHarness):
    """Drives one function like a slot does: each call below is one batch, finished when the call returns.

    A call that raises is a batch that fails: its state and timers are rolled back, and the next call runs on a fresh copy of the
    function, as a retry does in a job. `retry` repeats a batch that succeeded, as happens when another part of the job failed.

    >>> import pyarrow as pa
    >>> from statefulspark import KeyedProcessFunction
    >>> class Echo(KeyedProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         yield value.user, ctx.timestamp()
    >>> schema = {"user": pa.string(), "at": pa.timestamp("us")}
    >>> with KeyedProcessHarness(Echo(), schema, {"user": pa.string(), "at_ms": pa.int64()}, key="user", event_time="at") as harness:
    ...     harness.process_element(("ada",), 1000)
    ...     harness.get_output()
    [Row(user='ada', at_ms=1000)]

    Args:
        function: a fresh instance of the function under test: a KeyedProcessFunction or BatchKeyedProcessFunction, or a map, flat-map, filter or reduce function. It runs itself until a batch is undone; copies of it run after that.
        input_schema: the columns of its input: an Arrow schema, a dict of Arrow types, DDL text or a StructType.
        output_schema: the columns of its output.
        key: the key column, or several.
        event_time: the event-time column; None for a step without event time.
        max_parallelism: number of key groups, 1..32768.
        job_parameters: what ``RuntimeContext.get_job_parameter`` answers from.
        side_outputs: the tags of its side outputs; `get_side_output` returns their rows.

    Raises:
        InvalidInputError: the pieces do not fit together; names the field and the remedy.
    """

    def __init__(
        self,
        function: AnyKeyedFunction,
        input_schema: Schema,
        output_schema: Schema,
        *,
        key: str | Sequence[str],
        event_time: str | None = None,
        max_parallelism: int = 128,
        job_parameters: Mapping[str, str] | None = None,
        side_outputs: Iterable[OutputTag] = (),
    ) -> None:
        step = StepSpec(
            uid="harness",
            function=adapted(function, arrow_schema(input_schema)),
            input_schema=arrow_schema(input_schema),
            output_schema=arrow_schema(output_schema),
            key_columns=(key,) if isinstance(key, str) else tuple(key),
            event_time=event_time,
            watermark_delay_ms=0,
            max_parallelism=max_parallelism,
            side_outputs=side_outputs_of(side_outputs),
        )
        super().__init__(step, job_parameters)

    def process_element(self, value: Any, timestamp: int | None = None) -> None:
        """Give the function one row.

        Args:
            value: a tuple, ``Row`` or dict of the input schema. With ``timestamp`` the event-time column may be left out.
            timestamp: event time in milliseconds since the epoch, put into the event-time column.
        """
        self.process_elements([value if timestamp is None else stamped(value, timestamp, self._step.inputs[0])])

    def process_elements(self, values: Iterable[Any]) -> None:
        """Give the function several rows in one batch; rows of one key are brought into event-time order."""
        self._process(list(values))

    def process_watermark(self, watermark: int) -> None:
        """Move the watermark to ``watermark`` (milliseconds since the epoch) and fire the event-time timers that are due."""
        self._advance(watermark)
