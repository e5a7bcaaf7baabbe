"""KeyedTwoInputProcessHarness: runs one function with two keyed inputs in a unit test, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from statefulspark.process.adapters.co_function_adapters import AnyCoFunction, co_adapted
from statefulspark.process.api.output_tag import OutputTag
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.testing.inputs import SECOND, SecondInput
from statefulspark.testing.process_harness import stamped
from statefulspark.testing.schemas import Schema, arrow_schema, side_outputs_of
from statefulspark.testing.two_watermarks import TwoWatermarksHarness

__all__ = ["KeyedTwoInputProcessHarness"]


class KeyedTwoInputProcessHarness(TwoWatermarksHarness):
    """Drives one function with two keyed inputs like a slot does; otherwise as a `KeyedProcessHarness`.

    Each input has a watermark; the function sees the smaller one, and none until both inputs have one. An input without event time does not count.

    >>> from statefulspark import KeyedCoProcessFunction, Types, ValueStateDescriptor
    >>> class Named(KeyedCoProcessFunction):
    ...     def open(self, runtime_context):
    ...         self.name = runtime_context.get_state(ValueStateDescriptor("name", Types.STRING()))
    ...     def process_element1(self, value, ctx):
    ...         yield value.user, self.name.value(), value.page
    ...     def process_element2(self, value, ctx):
    ...         self.name.update(value.name)
    >>> names = SecondInput("id STRING, name STRING", key="id")
    >>> output = "user STRING, name STRING, page STRING"
    >>> with KeyedTwoInputProcessHarness(Named(), "user STRING, page STRING", names, output, key="user") as harness:
    ...     harness.process_element2(("u1", "Ada"))
    ...     harness.process_element1(("u1", "/home"))
    ...     harness.get_output()
    [Row(user='u1', name='Ada', page='/home')]

    Args:
        function: a fresh instance of the function under test: a KeyedCoProcessFunction, CoMapFunction or CoFlatMapFunction.
        input_schema: the columns of its first input: an Arrow schema, a dict of Arrow types, DDL text or a StructType.
        second: its second input.
        output_schema: the columns of its output.
        key: the key column of the first input, or several.
        event_time: the event-time column of the first input; None if that has no event time.
        max_parallelism: number of key groups, 1..32768.
        job_parameters: what ``RuntimeContext.get_job_parameter`` answers from.
        side_outputs: the tags of its side outputs; `get_side_output` returns their rows.

    Raises:
        InvalidInputError: the pieces do not fit together; names the field and the remedy.
    """

    def __init__(
        self,
        function: AnyCoFunction,
        input_schema: Schema,
        second: SecondInput,
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
            function=co_adapted(function),
            input_schema=arrow_schema(input_schema),
            output_schema=arrow_schema(output_schema),
            key_columns=(key,) if isinstance(key, str) else tuple(key),
            event_time=event_time,
            watermark_delay_ms=0,
            max_parallelism=max_parallelism,
            side_outputs=side_outputs_of(side_outputs),
            second=second.spec(),
        )
        super().__init__(step, job_parameters)

    def process_element1(self, value: Any, timestamp: int | None = None) -> None:
        """Give the function one row of the first input.

        Args:
            value: a tuple, ``Row`` or dict of the first input's schema. With ``timestamp`` the event-time column may be left out.
            timestamp: event time in milliseconds since the epoch, put into the event-time column.
        """
        self.process_elements([value if timestamp is None else stamped(value, timestamp, self._step.inputs[0])])

    def process_element2(self, value: Any, timestamp: int | None = None) -> None:
        """Give the function one row of the second input; arguments as of `process_element1`."""
        self.process_elements([SECOND(value if timestamp is None else stamped(value, timestamp, self._step.inputs[1]))])

    def process_elements(self, values: Iterable[Any]) -> None:
        """Give the function several rows in one batch, those of the second input as ``SECOND(row)``; rows of one key are brought into event-time order."""
        self._process(list(values))

    def process_watermark1(self, watermark: int) -> None:
        """Move the watermark of the first input to ``watermark`` (milliseconds since the epoch), and fire the timers that are due."""
        self._reached(watermark, None)

    def process_watermark2(self, watermark: int) -> None:
        """Move the watermark of the second input, likewise."""
        self._reached(None, watermark)
