"""KeyedBroadcastProcessHarness: runs one function with a keyed and a broadcast input in a unit test, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from statefulspark.process.api.broadcast_functions import KeyedBroadcastProcessFunction
from statefulspark.process.api.output_tag import OutputTag
from statefulspark.process.rows.step_spec import StepSpec
from statefulspark.state.api.descriptors import MapStateDescriptor
from statefulspark.testing.inputs import BROADCAST, BroadcastInput
from statefulspark.testing.process_harness import stamped
from statefulspark.testing.schemas import Schema, arrow_schema, side_outputs_of
from statefulspark.testing.two_watermarks import TwoWatermarksHarness

__all__ = ["KeyedBroadcastProcessHarness"]


class KeyedBroadcastProcessHarness(TwoWatermarksHarness):
    """Drives one function with a broadcast input like a slot does; otherwise as a `KeyedProcessHarness`.

    Each input has a watermark; the function sees the smaller one, and none until both inputs have one. An input without event time does not count.

    >>> from statefulspark import MapStateDescriptor, Types
    >>> LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.DOUBLE())
    >>> class OverLimit(KeyedBroadcastProcessFunction):
    ...     def process_broadcast_element(self, value, ctx):
    ...         ctx.get_broadcast_state(LIMITS).put(value.currency, value.limit)
    ...     def process_element(self, value, ctx):
    ...         if value.amount > (ctx.get_broadcast_state(LIMITS).get(value.currency) or 0):
    ...             yield value.card, value.amount
    >>> rules = BroadcastInput("currency STRING, limit DOUBLE", LIMITS)
    >>> payments, output = "card STRING, currency STRING, amount DOUBLE", "card STRING, amount DOUBLE"
    >>> with KeyedBroadcastProcessHarness(OverLimit(), payments, rules, output, key="card") as harness:
    ...     harness.process_broadcast_element(("EUR", 100.0))
    ...     harness.process_element(("c1", "EUR", 90.0))
    ...     harness.process_element(("c1", "EUR", 110.0))
    ...     harness.get_output(), harness.broadcast_state(LIMITS)
    ([Row(card='c1', amount=110.0)], {'EUR': 100.0})

    Args:
        function: a fresh instance of the function under test.
        input_schema: the columns of the keyed stream: an Arrow schema, a dict of Arrow types, DDL text or a StructType.
        broadcast: the broadcast stream and its states.
        output_schema: the columns of its output.
        key: the key column of the keyed stream, or several.
        event_time: the event-time column of the keyed stream; None if that has no event time.
        max_parallelism: number of key groups, 1..32768.
        job_parameters: what ``RuntimeContext.get_job_parameter`` answers from.
        side_outputs: the tags of its side outputs; `get_side_output` returns their rows.

    Raises:
        InvalidInputError: the pieces do not fit together; names the field and the remedy.
    """

    def __init__(
        self,
        function: KeyedBroadcastProcessFunction,
        input_schema: Schema,
        broadcast: BroadcastInput,
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
            function=function,
            input_schema=arrow_schema(input_schema),
            output_schema=arrow_schema(output_schema),
            key_columns=(key,) if isinstance(key, str) else tuple(key),
            event_time=event_time,
            watermark_delay_ms=0,
            max_parallelism=max_parallelism,
            side_outputs=side_outputs_of(side_outputs),
            second=broadcast.spec(),
            broadcast=broadcast.descriptors,
        )
        super().__init__(step, job_parameters)

    def process_element(self, value: Any, timestamp: int | None = None) -> None:
        """Give the function one row of the keyed stream.

        Args:
            value: a tuple, ``Row`` or dict of the stream's schema. With ``timestamp`` the event-time column may be left out.
            timestamp: event time in milliseconds since the epoch, put into the event-time column.
        """
        self.process_elements([value if timestamp is None else stamped(value, timestamp, self._step.inputs[0])])

    def process_broadcast_element(self, value: Any, timestamp: int | None = None) -> None:
        """Give the function one row of the broadcast stream; arguments as of `process_element`."""
        self.process_elements([BROADCAST(value if timestamp is None else stamped(value, timestamp, self._step.inputs[1]))])

    def process_elements(self, values: Iterable[Any]) -> None:
        """Give the function several rows in one batch, those of the broadcast stream as ``BROADCAST(row)``; they come first, as in a job."""
        self._process(list(values))

    def process_broadcast_watermark(self, watermark: int) -> None:
        """Move the watermark of the broadcast stream to ``watermark`` (milliseconds since the epoch), and fire the timers that are due."""
        self._reached(None, watermark)

    def process_keyed_watermark(self, watermark: int) -> None:
        """Move the watermark of the keyed stream, likewise."""
        self._reached(watermark, None)

    def broadcast_state(self, state_descriptor: MapStateDescriptor) -> dict[Any, Any]:
        """Returns a broadcast state as it is now."""
        return dict(self._opened().operator.broadcast.read_only(state_descriptor).items())
